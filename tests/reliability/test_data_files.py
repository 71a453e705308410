"""Data and caches that are not as they should be: full disks, nulls, bombs, names in another encoding."""

import errno
import io
import json
import os
import shutil
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from fna_lightning.callbacks.prediction_writer import PredictionWriter
from fna_lightning.cli import main
from fna_lightning.config.messages import explain
from fna_lightning.errors import UsageError
from fna_lightning.tasks.data import array_files
from fna_lightning.tasks.data.array_files import create_array, save_array
from fna_lightning.tasks.data.cache import ensure
from fna_lightning.tasks.data.token_files import open_tokens
from fna_lightning.tasks.image.cache import open_images, write_images
from fna_lightning.tasks.image.cifar10_source import HubImages, check_labels
from fna_lightning.tasks.image.codec import MAX_PIXELS, ImageCodec, decode
from fna_lightning.tasks.text.predict import classify
from fna_lightning.tasks.text.source import TextSource
from fna_lightning.tasks.translation.parallel_source import ParallelSource

# builds a cache of two megabytes on a disk of one
FULL_DISK = """
import subprocess, sys
from pathlib import Path
import numpy as np
folder = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], check=True)
from fna_lightning.errors import UsageError
from fna_lightning.tasks.image.cache import write_images
from fna_lightning.tasks.data.cache import ensure
pixels = lambda number: np.full((3, 32, 32), 7, np.uint8)
try:
    ensure(folder / "cache", lambda draft: write_images(draft, pixels, [0] * 700, (3, 32, 32)))
except UsageError as error:
    print(error)
    print([path.name for path in folder.iterdir()])
"""


def in_a_namespace(code: str, *arguments: object) -> "subprocess.CompletedProcess[str]":
    """Run code where it may mount a disk of its own; skip where the system does not let us."""
    unshare = ["unshare", "--user", "--map-root-user", "--mount"]
    if shutil.which("unshare") is None or subprocess.run([*unshare, "true"], capture_output=True).returncode:
        if os.name != "posix" or os.geteuid() != 0 or shutil.which("unshare") is None:
            pytest.skip("no namespaces for mounts here")
        unshare = ["unshare", "--mount"]
        if subprocess.run([*unshare, "true"], capture_output=True).returncode:
            pytest.skip("no namespaces for mounts here")
    command = [*unshare, sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_a_full_cache_disk_is_a_sentence(tmp_path: Path) -> None:
    ended = in_a_namespace(FULL_DISK, tmp_path)
    assert ended.returncode == 0, (ended.returncode, ended.stderr)
    said, left = ended.stdout.splitlines()
    assert "cannot be written (No space left on device); free some space, or set FNA_CACHE to a folder on" in said
    assert left == "['cache.lock']"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_that_has_no_space_to_reserve(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    with pytest.raises(UsageError, match="free some space, or set FNA_CACHE"):
        ensure(tmp_path / "cache", lambda draft: write_images(draft, lambda _: np.zeros(1), [0, 1], (1, 1, 1)))


@pytest.mark.parametrize("number", [None, errno.EOPNOTSUPP, errno.EINVAL])
def test_space_is_reserved_where_the_system_cannot(
    number: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(*args: object) -> None:
        assert number is not None
        raise OSError(number, "")

    monkeypatch.setattr(array_files, "CHUNK", 1000)
    if number is None:
        monkeypatch.delattr(os, "posix_fallocate", raising=False)
    else:
        monkeypatch.setattr(os, "posix_fallocate", unsupported, raising=False)
    create_array(tmp_path / "array.npy", np.int32, (50, 33))[:] = 5
    found = np.load(tmp_path / "array.npy")
    assert found.shape == (50, 33)
    assert found.dtype == np.int32
    assert (found == 5).all()
    status = (tmp_path / "array.npy").stat()
    assert status.st_blocks * 512 >= 50 * 33 * 4


@pytest.mark.parametrize(
    "array", [np.arange(7, dtype=np.uint16), np.empty(0, np.int64), np.arange(12.0).reshape(3, 4).T, np.zeros((2, 0))]
)
def test_arrays_there_and_back(array: Any, tmp_path: Path) -> None:
    save_array(tmp_path / "array.npy", array)
    found = np.load(tmp_path / "array.npy")
    assert found.dtype == array.dtype
    assert np.array_equal(found, array)


def test_a_cache_emptied_while_it_is_used(tmp_path: Path) -> None:
    folder = ensure(
        tmp_path / "cache", lambda draft: write_images(draft, lambda _: np.zeros((1, 2, 2)), [0, 1], (1, 2, 2))
    )
    (folder / "labels.npy").write_bytes(b"")
    for opener in (open_images, open_tokens):
        with pytest.raises(UsageError, match=r"the cache .* was emptied or changed while it was in use .*; run again"):
            opener(folder)


@pytest.mark.parametrize("manifest", ["{}", "[]", "null", "[1]", '{"labels.npy": 1}', "[" * 100_000])
def test_a_cache_with_an_emptied_manifest_is_built_again(manifest: str, tmp_path: Path) -> None:
    def build(draft: Path) -> None:
        (draft / "file").write_text("whole")

    ensure(tmp_path / "cache", build)
    (tmp_path / "cache/file").unlink()
    (tmp_path / "cache/manifest.json").write_text(manifest)
    assert (ensure(tmp_path / "cache", build) / "file").read_text() == "whole"


def write_jsonl(folder: Path, **splits: list[dict[str, Any]]) -> Path:
    for split, rows in splits.items():
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_null_texts_are_named(tmp_path: Path) -> None:
    good = [{"text": "a", "label": 0}] * 3
    folder = write_jsonl(tmp_path, train=[*good, {"text": None, "label": 1}], test=good)
    with pytest.raises(
        UsageError, match=r"row 3 of column 'text' of split 'train' of .* is null and not a text; remove"
    ):
        TextSource(str(folder), 2).read()


def test_null_labels_are_named(tmp_path: Path) -> None:
    rows = [{"text": "a", "label": 0}, {"text": "a", "label": 7}, {"text": "b", "label": None}]
    with pytest.raises(UsageError, match="has the label null; expected are"):
        TextSource(str(write_jsonl(tmp_path, train=rows, test=rows)), 2).read()
    with pytest.raises(UsageError, match="has the label null"):
        check_labels([0, None, 12], "a split")  # type: ignore[list-item]


def test_null_translations_are_named(tmp_path: Path) -> None:
    rows = [{"en": "a", "de": "b"}, {"en": "c", "de": None}]
    with pytest.raises(UsageError, match=r"row 1 of column 'de' of split 'train' of .* is null"):
        ParallelSource(str(write_jsonl(tmp_path, train=rows, val=rows, test=rows)), "en", "de").read()


def test_texts_given_to_a_classifier_must_be_texts() -> None:
    with pytest.raises(UsageError, match="text 2 is None and not a text"):
        list(classify(None, None, ["a", None]))  # type: ignore[list-item]
    assert list(classify(None, None, [])) == []


def test_null_pictures_are_named(tmp_path: Path) -> None:
    import datasets

    kinds = datasets.Features(img=datasets.Image(), label=datasets.Value("int64"))
    files = datasets.Dataset.from_dict({"img": [None], "label": [0]}, kinds)
    pixels, _ = HubImages("a folder", 10)._images({"train": files}, "train")
    with pytest.raises(UsageError, match="image 0 of split 'train' of a folder is null and no picture"):
        pixels(0)


def png(width: int, height: int) -> bytes:
    """Return a grey PNG of so many pixels, all 0: about a thousandth of a byte each."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        body = kind + content
        return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))

    packer = zlib.compressobj(1)
    rows = [packer.compress(bytes(width + 1)) for _ in range(height)]
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    content = b"".join([*rows, packer.flush()])
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", content) + chunk(b"IEND", b"")


def test_a_picture_of_too_many_pixels_is_refused_before_it_is_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from PIL import Image

    side = int(MAX_PIXELS**0.5) + 1
    path = tmp_path / "large.png"
    path.write_bytes(png(side, side))
    assert path.stat().st_size < 1_000_000
    monkeypatch.setattr(Image.Image, "load", lambda self: pytest.fail("it was decoded"))
    with pytest.raises(UsageError, match=r"large\.png has 7,072 x 7,072 pixels, the limit is 50,000,000; make the"):
        ImageCodec(["a"], 1, 32).read(path)


def test_a_picture_that_pillow_calls_a_bomb() -> None:
    head = png(1, 1).replace(struct.pack(">II", 1, 1), struct.pack(">II", 60_000, 60_000), 1)
    body = head[12:29]
    content = head[:29] + struct.pack(">I", zlib.crc32(body)) + head[33:]
    with pytest.raises(UsageError, match="x has too many pixels, the limit is 50,000,000"):
        decode(content, "x", 1, 32)


def test_only_png_and_jpeg_are_parsed() -> None:
    """Pillow knows formats whose readers start other programs."""
    from PIL import Image

    for kind in ("GIF", "EPS", "TIFF"):
        buffer = io.BytesIO()
        Image.new("RGB", (4, 4)).save(buffer, kind)
        with pytest.raises(UsageError, match="x is no picture that can be read"):
            decode(buffer.getvalue(), "x", 3, 4)


def test_a_large_picture_within_the_limit() -> None:
    assert decode(png(3000, 2000), "x", 1, 8, resize=True).shape == (1, 8, 8)


def test_file_names_in_another_encoding(tmp_path: Path) -> None:
    """Predictions of pictures, and data sets, whose files have such names."""
    trainer: Any = SimpleNamespace(
        world_size=1, datamodule=SimpleNamespace(example_names=lambda: [os.fsdecode(b"caf\xe9.png"), "=1+1.png"])
    )
    found = [{"label": ["+cmd", "cat"], "probability": torch.tensor([0.5, -0.25])}]
    PredictionWriter(str(tmp_path)).write_on_epoch_end(trainer, None, found, [[[0, 1]]])  # type: ignore[arg-type]
    lines = (tmp_path / "predictions.csv").read_text().splitlines()
    assert lines == ["file,label,probability", "caf\\udce9.png,'+cmd,0.5", "'=1+1.png,cat,-0.25"]
    data = tmp_path / "data"
    data.mkdir()
    Path(os.fsdecode(os.fsencode(data) + b"/train-\xe9.parquet")).write_bytes(b"x")
    assert len(TextSource(str(data), 2).fingerprint) == 64


def test_an_encoding_error_in_words() -> None:
    with pytest.raises(UnicodeEncodeError) as caught:
        os.fsdecode(b"caf\xe9").encode()
    assert "'caf\\udce9' holds bytes that are not UTF-8, most often a file name" in explain(caught.value)


def test_a_run_folder_that_is_gone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["resume", str(tmp_path / "gone")]) == 2
    assert f"there is no folder '{tmp_path / 'gone'}': it was deleted, moved or never made" in capsys.readouterr().err
