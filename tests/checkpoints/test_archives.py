"""Checkpoints and exported weights that are damaged, or crafted to exhaust memory or time when they are opened."""

import io
import json
import pickle
import shutil
import struct
import tarfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fna_lightning.checkpoints.archive import check_archive
from fna_lightning.checkpoints.load import read_checkpoint
from fna_lightning.checkpoints.load_failure import load_failure, without_advice
from fna_lightning.cli import main
from fna_lightning.errors import UsageError

from helpers.tiny_runs import train_tiny

# Refusing a crafted file takes milliseconds; the limit allows for a busy machine.
AT_ONCE = 5.0


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real checkpoint."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FNA_RUN_DIR", "")
        return train_tiny(tmp_path_factory.mktemp("run"), "--trainer.callbacks=[]", "--model.encoder.dim=8")


def refusal(path: Path) -> str:
    """Return the message with which a checkpoint is refused, which must be fast."""
    started = time.perf_counter()
    with pytest.raises(UsageError) as caught:
        read_checkpoint(path)
    assert time.perf_counter() - started < AT_ONCE
    assert str(path) in str(caught.value)
    return str(caught.value)


def archive(path: Path, records: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> Path:
    """Write a zip archive as torch.save does."""
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, content in {"version": b"3\n", "byteorder": b"little", **records}.items():
            file.writestr(f"archive/{name}", content)
    return path


def test_every_record_of_a_real_checkpoint_is_covered(checkpoint: Path, tmp_path: Path) -> None:
    """One flipped byte in the middle of any record is detected and the error names the record."""
    content = checkpoint.read_bytes()
    with zipfile.ZipFile(checkpoint) as file:
        records = [(record.filename, record.header_offset, record.file_size) for record in file.infolist()]
    assert len(records) > 10
    for name, start, size in records:
        names, extra = struct.unpack("<HH", content[start + 26 : start + 30])
        place = start + 30 + names + extra + size // 2
        bad = tmp_path / "bad.ckpt"
        bad.write_bytes(content[:place] + bytes([content[place] ^ 0x10]) + content[place + 1 :])
        assert f"is damaged: the bytes of its record {name!r} have changed" in refusal(bad)


def test_commands_refuse_a_checkpoint_with_flipped_bytes(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = torch.load(checkpoint, weights_only=True)["state_dict"]
    needle = next(value for value in weights.values() if value.numel() > 50).numpy().tobytes()
    content = bytearray(checkpoint.read_bytes())
    content[content.index(needle) + 6] ^= 0x40
    bad = tmp_path / "bad.ckpt"
    bad.write_bytes(content)
    for argv in (["classify", str(bad), "a text"], ["export", str(bad), str(tmp_path / "out")]):
        assert main(argv) == 2
        assert f"{bad} is damaged: the bytes of its record" in capsys.readouterr().err


def nested_lists(depth: int) -> bytes:
    return b"\x80\x02" + b"]" * depth + b"a" * (depth - 1) + b"."


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (nested_lists(10**7), "bytes of instructions, which is the limit"),
        (b"\x80\x02)" + b"\x85" * 10**7 + b".", "bytes of instructions, which is the limit"),
        (b"\x80\x02" + b"(" * 10**7 + b".", "bytes of instructions, which is the limit"),
    ],
    ids=["lists", "tuples", "marks"],
)
def test_a_pickle_with_too_many_opcodes_is_refused(content: bytes, message: str, tmp_path: Path) -> None:
    assert message in refusal(archive(tmp_path / "deep.ckpt", {"data.pkl": content}))


def as_checkpoint(model_config: Any) -> dict[str, Any]:
    return {"state_dict": {}, "model_config": model_config}


def test_a_deeply_nested_pickle_is_refused(tmp_path: Path) -> None:
    """It has few enough opcodes to be read, but is too deep for recursive code."""
    content = b"\x80\x02}(X\x0a\x00\x00\x00state_dict}X\x06\x00\x00\x00recipe" + nested_lists(5000)[2:-1] + b"u."
    archive(tmp_path / "deep.ckpt", {"data.pkl": content})
    assert "is nested more than 64 levels deep, which is the limit" in refusal(tmp_path / "deep.ckpt")


def test_a_pickle_that_contains_itself_is_refused(tmp_path: Path) -> None:
    loop: list[Any] = []
    loop.append(loop)
    torch.save(as_checkpoint(loop), tmp_path / "loop.ckpt")
    assert "is nested more than 64 levels deep" in refusal(tmp_path / "loop.ckpt")


def test_a_pickle_of_shared_lists_is_refused(tmp_path: Path) -> None:
    laughs: list[Any] = ["x"]
    for _ in range(30):
        laughs = [laughs] * 10
    torch.save(as_checkpoint(laughs), tmp_path / "laughs.ckpt")
    assert "expands to more than 5,000,000 values, which is the limit" in refusal(tmp_path / "laughs.ckpt")


def test_a_zip_bomb_is_refused(tmp_path: Path) -> None:
    """torch.load would expand 100 kilobytes to 100 megabytes, a factor of a thousand."""
    buffer = io.BytesIO()
    torch.save(as_checkpoint(torch.zeros(25_000_000)), buffer)
    with zipfile.ZipFile(buffer) as whole:
        records = {name.partition("/")[2]: whole.read(name) for name in whole.namelist()}
    bomb = archive(tmp_path / "bomb.ckpt", records, zipfile.ZIP_DEFLATED)
    assert bomb.stat().st_size < 200_000
    assert "is compressed" in refusal(bomb)


def test_overlapping_records_are_refused(tmp_path: Path) -> None:
    """The table of contents names the same megabyte many times."""
    path = archive(
        tmp_path / "overlap.ckpt", {f"data/{number:04}": b"" for number in range(1000)} | {"big": b"x" * 10**6}
    )
    content = bytearray(path.read_bytes())
    table = content.index(b"PK\x01\x02")
    place, entries = table, {}
    while content[place : place + 4] == b"PK\x01\x02":
        length, extra, comment = struct.unpack("<HHH", content[place + 28 : place + 34])
        entries[bytes(content[place + 46 : place + 46 + length])] = place
        place += 46 + length + extra + comment
    big = entries.pop(b"archive/big")
    for name, entry in entries.items():
        if b"data/" in name:
            # CRC, sizes and offset are those of the big record.
            content[entry + 16 : entry + 28] = content[big + 16 : big + 28]
            content[entry + 42 : entry + 46] = content[big + 42 : big + 46]
    path.write_bytes(content)
    assert "its records claim 1,001,000" in refusal(path)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda content: content + b"junk", id="bytes after its end"),
        pytest.param(lambda content: content[:-30], id="cut off"),
        pytest.param(lambda content: content[: len(content) // 2], id="half"),
        pytest.param(lambda content: b"\x00" * len(content), id="zeros"),
    ],
)
def test_an_incomplete_archive_is_refused(change: Callable[[bytes], bytes], checkpoint: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.ckpt"
    bad.write_bytes(change(checkpoint.read_bytes()))
    assert "is not a checkpoint this program can trust or read: it does not end as a zip archive" in refusal(bad)


def test_tensors_much_larger_than_their_file_are_refused(tmp_path: Path) -> None:
    for name, tensor in {
        "expanded": torch.zeros(1).expand(10**12),
        "without storage": torch.empty(10**12, device="meta"),
    }.items():
        path = tmp_path / f"{name}.ckpt"
        torch.save({"state_dict": {"a": tensor}}, path)
        assert "its tensors would take 4,000,000,000,000 bytes, more than 16 times the" in refusal(path)


def test_a_large_checkpoint_is_checked_fast(tmp_path: Path) -> None:
    torch.save({"state_dict": {"a": torch.randn(25_000_000)}}, tmp_path / "large.ckpt")
    started = time.process_time()
    with (tmp_path / "large.ckpt").open("rb") as file:
        check_archive(file, "large.ckpt")
        assert file.tell() == 0
    # A CRC-32 of 100 megabytes takes 0.05 seconds.
    assert time.process_time() - started < 2.0


def pickled(instructions: bytes) -> Callable[[Path], Any]:
    def load(folder: Path) -> Any:
        return torch.load(archive(folder / "x.pt", {"data.pkl": instructions}), weights_only=True)

    return load


def script(folder: Path) -> Any:
    torch.load(archive(folder / "x.pt", {"constants.pkl": b"\x80\x02).", "data.pkl": b"\x80\x02)."}), weights_only=True)


def tar(folder: Path) -> Any:
    with tarfile.open(folder / "x.tar", "w") as file:
        for name in ("storages", "tensors", "pickle"):
            member = tarfile.TarInfo(name)
            content = pickle.dumps(0)
            member.size = len(content)
            file.addfile(member, io.BytesIO(content))
    torch.load(folder / "x.tar", weights_only=True)


FORMATS = {
    "a function": pickled(b"\x80\x02cbuiltins\nprint\n)R."),
    "a blocked module": pickled(b"\x80\x02cos\nsystem\n)R."),
    "an unknown opcode": pickled(b"\x80\x02\x96."),
    "a call of something else": pickled(b"\x80\x02]]R."),
    "an object of another class": pickled(b"\x80\x02]]b."),
    "an append to a dictionary": pickled(b"\x80\x02}]a."),
    "a script": script,
    "a tar file": tar,
}


@pytest.mark.parametrize("name", FORMATS)
def test_pytorchs_advice_is_removed_from_messages(name: str, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"(?s).") as caught:
        FORMATS[name](tmp_path)
    # The original message contains the advice, so there is something to remove.
    original = str(caught.value)
    assert "weights_only" in original or name == "an unknown opcode"
    for text in (load_failure(caught.value), without_advice(original)):
        assert not any(phrase in text for phrase in ADVICE), text
    assert load_failure(caught.value)


ADVICE = ("weights_only", "safe_globals", "trusted source", "arbitrary code", "torch.load", "you trust")


def test_advice_on_types_that_must_be_imported_is_removed() -> None:
    """These types are imported in this process, so the message is built as torch.load builds it."""
    message = "``torch.distributed.tensor`` must be imported to load DTensors"
    error = pickle.UnpicklingError(f"Weights only load failed. {message}\n {torch.serialization.UNSAFE_MESSAGE}\n")
    assert load_failure(error) == f"it is damaged or holds more than tensors and plain values ({message})"


def test_advice_of_lightning_is_removed() -> None:
    text = (
        "Defaulting to `weights_only=False` for remote checkpoint: x. If loading a checkpoint from an untrustted "
        "source, we recommend using `weights_only=True`."
    )
    assert "False" not in without_advice(text)
    kept = "Parser key \"weights_only\": Expected a <class 'bool'>. Got value: x"
    assert without_advice(kept) == kept


@pytest.mark.parametrize("name", FORMATS)
def test_no_command_prints_the_advice(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Exception, match=r"(?s)."):
        FORMATS[name](tmp_path)
    (path,) = tmp_path.iterdir()
    bad = path.rename(tmp_path / "bad.ckpt")
    assert main(["classify", str(bad), "a text", "--debug"]) == 2
    printed = capsys.readouterr().err
    # The traceback of --debug shows lines of our own code that name the argument.
    message = "\n".join(line for line in printed.splitlines() if not line.startswith("    "))
    assert not any(phrase in message for phrase in ADVICE), message


@pytest.fixture(scope="module")
def published(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("huggingface_hub", reason="needs the extra `export`")
    folder = tmp_path_factory.mktemp("published") / "model"
    assert main(["export", str(checkpoint), str(folder)]) == 0
    return folder


def load_published(folder: Path) -> Any:
    from fna_lightning.integrations.hub import PublishedModel

    return PublishedModel.from_pretrained(folder)


def test_flipped_bytes_in_exported_weights_are_detected(published: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(published, folder)
    load_published(folder)
    content = bytearray((folder / "model.safetensors").read_bytes())
    content[-20] ^= 0x10
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(UsageError, match=r"model\.safetensors is damaged: its SHA-256 is not the one in config\.json"):
        load_published(folder)
    config = json.loads((folder / "config.json").read_text())
    # A folder without a digest loads without the check.
    config.pop("weights_sha256")
    (folder / "config.json").write_text(json.dumps(config))
    load_published(folder)


def test_a_huge_header_in_exported_weights_is_refused(published: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(published, folder)
    entries = ",".join(f'"{number}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}' for number in range(600_000))
    header = f"{{{entries}}}".encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    started = time.perf_counter()
    with pytest.raises(
        UsageError, match=r"its header claims .* bytes, the limit is 16,777,216; export the model again"
    ):
        load_published(folder)
    assert time.perf_counter() - started < AT_ONCE


def test_deep_nesting_in_an_exported_configuration_is_refused(published: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(published, folder)
    for content in (
        '{"model_config": ' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"model_config": {"a": ' + "[" * 100 + "]" * 100 + "}}",
    ):
        (folder / "config.json").write_text(content)
        with pytest.raises(UsageError, match=r"config\.json is nested (too deeply|more than 64 levels)"):
            load_published(folder)
