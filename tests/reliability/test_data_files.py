"""Invalid data and caches: full disks, null values, decompression bombs, file names in another encoding."""

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
from torch import nn

from fna_lightning.callbacks.prediction_writer import PredictionWriter
from fna_lightning.cli import main
from fna_lightning.config.messages import explain
from fna_lightning.errors import UsageError
from fna_lightning.tasks.data import array_files
from fna_lightning.tasks.data.array_files import create_array, save_array
from fna_lightning.tasks.data.cache import ensure
from fna_lightning.tasks.data.hub import check_labels
from fna_lightning.tasks.data.token_files import open_tokens
from fna_lightning.tasks.image.cache import open_images, write_images
from fna_lightning.tasks.image.cifar10_source import Cifar10Source
from fna_lightning.tasks.image.codec import MAX_PIXELS, ImageCodec, decode
from fna_lightning.tasks.text.codec import TextCodec
from fna_lightning.tasks.text.predict import classify
from fna_lightning.tasks.text.source import TextSource
from fna_lightning.tasks.translation.parallel_source import ParallelSource

pytestmark = pytest.mark.e2e

# builds a cache of two megabytes on a disk of one megabyte
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


def run_in_mount_namespace(code: str, *arguments: object) -> "subprocess.CompletedProcess[str]":
    """Run code in a namespace in which it may mount a disk; skip the test if the system does not allow it."""
    unshare = ["unshare", "--user", "--map-root-user", "--mount"]
    if shutil.which("unshare") is None or subprocess.run([*unshare, "true"], capture_output=True).returncode:
        if os.name != "posix" or os.geteuid() != 0 or shutil.which("unshare") is None:
            pytest.skip("this system does not allow mount namespaces")
        unshare = ["unshare", "--mount"]
        if subprocess.run([*unshare, "true"], capture_output=True).returncode:
            pytest.skip("this system does not allow mount namespaces")
    command = [*unshare, sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_a_full_disk_is_a_usage_error(tmp_path: Path) -> None:
    completed = run_in_mount_namespace(FULL_DISK, tmp_path)
    assert completed.returncode == 0, (completed.returncode, completed.stderr)
    message, files = completed.stdout.splitlines()
    assert "cannot be written (No space left on device); free some space, or set FNA_CACHE to a folder on" in message
    assert files == "['cache.lock']"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_without_space_to_reserve_is_a_usage_error(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    with pytest.raises(UsageError, match="free some space, or set FNA_CACHE"):
        ensure(tmp_path / "cache", lambda draft: write_images(draft, lambda _: np.zeros(1), [0, 1], (1, 1, 1)))


@pytest.mark.parametrize("number", [None, errno.EOPNOTSUPP, errno.EINVAL])
def test_space_is_reserved_by_writing_zeros_where_the_system_cannot(
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
    loaded = np.load(tmp_path / "array.npy")
    assert loaded.shape == (50, 33)
    assert loaded.dtype == np.int32
    assert (loaded == 5).all()
    status = (tmp_path / "array.npy").stat()
    assert status.st_blocks * 512 >= 50 * 33 * 4


@pytest.mark.parametrize(
    "array", [np.arange(7, dtype=np.uint16), np.empty(0, np.int64), np.arange(12.0).reshape(3, 4).T, np.zeros((2, 0))]
)
def test_saved_arrays_are_loaded_unchanged(array: Any, tmp_path: Path) -> None:
    save_array(tmp_path / "array.npy", array)
    loaded = np.load(tmp_path / "array.npy")
    assert loaded.dtype == array.dtype
    assert np.array_equal(loaded, array)


def test_a_cache_emptied_while_it_is_in_use_is_a_usage_error(tmp_path: Path) -> None:
    folder = ensure(
        tmp_path / "cache", lambda draft: write_images(draft, lambda _: np.zeros((1, 2, 2)), [0, 1], (1, 2, 2))
    )
    (folder / "labels.npy").write_bytes(b"")
    for opener in (open_images, open_tokens):
        with pytest.raises(UsageError, match=r"the cache .* was emptied or changed while it was in use .*; run the"):
            opener(folder)


@pytest.mark.parametrize("manifest", ["{}", "[]", "null", "[1]", '{"labels.npy": 1}', "[" * 100_000])
def test_a_cache_with_an_invalid_manifest_is_rebuilt(manifest: str, tmp_path: Path) -> None:
    def build(draft: Path) -> None:
        (draft / "file").write_text("complete")

    ensure(tmp_path / "cache", build)
    (tmp_path / "cache/file").unlink()
    (tmp_path / "cache/manifest.json").write_text(manifest)
    assert (ensure(tmp_path / "cache", build) / "file").read_text() == "complete"


def write_jsonl(folder: Path, **splits: list[dict[str, Any]]) -> Path:
    for split, rows in splits.items():
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_null_texts_are_named(tmp_path: Path) -> None:
    good = [{"text": "a", "label": 0}] * 3
    folder = write_jsonl(tmp_path, train=[*good, {"text": None, "label": 1}], test=good)
    with pytest.raises(UsageError, match=r"row 3 of column 'text' of split 'train' of .* is null, not a text; remove"):
        TextSource(str(folder), 2).read()


def test_null_labels_are_named(tmp_path: Path) -> None:
    rows = [{"text": "a", "label": 0}, {"text": "a", "label": 7}, {"text": "b", "label": None}]
    with pytest.raises(UsageError, match="has the label null; labels must be integers from 0 to 1"):
        TextSource(str(write_jsonl(tmp_path, train=rows, test=rows)), 2).read()
    with pytest.raises(UsageError, match="has the label null"):
        check_labels([0, None, 12], 10, "a split")


def test_null_translations_are_named(tmp_path: Path) -> None:
    rows = [{"en": "a", "de": "b"}, {"en": "c", "de": None}]
    with pytest.raises(UsageError, match=r"row 1 of column 'de' of split 'train' of .* is null"):
        ParallelSource(str(write_jsonl(tmp_path, train=rows, val=rows, test=rows)), "en", "de").read()


CODEC = TextCodec("{}", ["negative", "positive"], 8)


def test_a_classifier_accepts_only_strings() -> None:
    with pytest.raises(UsageError, match="text 2 is None, not a string"):
        list(classify(nn.Identity(), CODEC, ["a", None]))  # type: ignore[list-item]
    assert list(classify(nn.Identity(), CODEC, [])) == []


def test_null_images_are_named(tmp_path: Path) -> None:
    import datasets

    features = datasets.Features(img=datasets.Image(), label=datasets.Value("int64"))
    files = datasets.Dataset.from_dict({"img": [None], "label": [0]}, features)
    pixels, _ = Cifar10Source("a folder").read_split({"train": files}, "train")
    with pytest.raises(UsageError, match="image 0 of split 'train' of a folder is null, not an image"):
        pixels(0)


def png(width: int, height: int) -> bytes:
    """Return a black gray-scale PNG; a pixel takes about a thousandth of a byte."""

    def chunk(name: bytes, content: bytes) -> bytes:
        body = name + content
        return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))

    compressor = zlib.compressobj(1)
    rows = [compressor.compress(bytes(width + 1)) for _ in range(height)]
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    content = b"".join([*rows, compressor.flush()])
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", content) + chunk(b"IEND", b"")


def test_an_image_with_too_many_pixels_is_refused_before_it_is_decoded(
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


def test_a_decompression_bomb_is_refused() -> None:
    head = png(1, 1).replace(struct.pack(">II", 1, 1), struct.pack(">II", 60_000, 60_000), 1)
    body = head[12:29]
    content = head[:29] + struct.pack(">I", zlib.crc32(body)) + head[33:]
    with pytest.raises(UsageError, match="x has too many pixels, the limit is 50,000,000"):
        decode(content, "x", 1, 32)


def test_only_a_few_formats_are_parsed() -> None:
    """Pillow's reader of EPS files starts another program."""
    from PIL import Image

    for file_format in ("EPS", "TIFF", "PPM"):
        buffer = io.BytesIO()
        Image.new("RGB", (4, 4)).save(buffer, file_format)
        with pytest.raises(UsageError, match="x cannot be decoded as an image"):
            decode(buffer.getvalue(), "x", 3, 4)


def test_a_large_image_within_the_limit() -> None:
    assert decode(png(3000, 2000), "x", 1, 8).shape == (1, 8, 8)


def test_file_names_in_another_encoding(tmp_path: Path) -> None:
    """File names that are not UTF-8, in predictions and in data sets."""
    trainer: Any = SimpleNamespace(
        world_size=1, datamodule=SimpleNamespace(example_names=lambda: [os.fsdecode(b"caf\xe9.png"), "=1+1.png"])
    )
    predictions = [{"label": ["+cmd", "cat"], "probability": torch.tensor([0.5, -0.25])}]
    PredictionWriter(str(tmp_path)).write_on_epoch_end(trainer, None, predictions, [[[0, 1]]])  # type: ignore[arg-type]
    lines = (tmp_path / "predictions.csv").read_text().splitlines()
    assert lines == ["file,label,probability", "caf\\udce9.png,'+cmd,0.5", "'=1+1.png,cat,-0.25"]
    data = tmp_path / "data"
    data.mkdir()
    Path(os.fsdecode(os.fsencode(data) + b"/train-\xe9.parquet")).write_bytes(b"x")
    assert len(TextSource(str(data), 2).fingerprint) == 64


def test_an_encoding_error_is_explained() -> None:
    with pytest.raises(UnicodeEncodeError) as caught:
        os.fsdecode(b"caf\xe9").encode()
    assert "'caf\\udce9' holds bytes that are not UTF-8, most often a file name" in explain(caught.value)


def test_a_missing_run_folder_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["resume", str(tmp_path / "gone")]) == 2
    assert f"there is no folder '{tmp_path / 'gone'}': it was deleted, moved or never made" in capsys.readouterr().err
