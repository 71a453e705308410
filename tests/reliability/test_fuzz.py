"""Damaged and random files: a one-line error, exit code 2, no code executed, no traceback, no hang.

A few examples in CI; to run many: FNA_EXAMPLES=200 pytest tests/reliability/test_fuzz.py --timeout 3600
"""

import contextlib
import io
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fna_lightning.checkpoints.load import read_checkpoint, task_of
from fna_lightning.checkpoints.resume import ResumePoint
from fna_lightning.cli import main
from fna_lightning.config.resolve import shipped_configs
from fna_lightning.errors import UsageError
from fna_lightning.tasks.text.source import TextSource

from helpers.fuzz_examples import examples
from helpers.tiny_runs import train_tiny

pytestmark = pytest.mark.e2e

SOME = settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=examples(15))
FEW = settings(SOME, max_examples=examples(8))

plain_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoint of a short run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FNA_RUN_DIR", "")
        return train_tiny(tmp_path_factory.mktemp("run"), "--trainer.callbacks=[]", "--model.encoder.dim=8")


def run_command(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Run a command; it must succeed, or fail with exit code 2 and a one-line error."""
    code = main(argv)
    printed = capsys.readouterr().err
    assert "Traceback" not in printed
    assert code in (0, 2)
    if code == 2:
        assert len(re.findall(r"^fna-lightning: error: .+", printed, flags=re.MULTILINE)) == 1, printed


@st.composite
def damage(draw: st.DrawFn, content: bytes) -> bytes:
    """Draw a damaged version of a file: truncated, bits flipped, a piece removed or repeated."""
    change = draw(st.sampled_from(["truncate", "flip", "remove", "repeat"]))
    place = draw(st.integers(0, len(content) - 1))
    if change == "truncate":
        return content[:place]
    if change == "flip":
        places = draw(st.lists(st.integers(0, 8 * len(content) - 1), min_size=1, max_size=20))
        flipped = bytearray(content)
        for bit in places:
            flipped[bit // 8] ^= 1 << bit % 8
        return bytes(flipped)
    size = draw(st.integers(1, 500))
    piece = content[place : place + size]
    return content[:place] + (piece + piece if change == "repeat" else b"") + content[place + size :]


@SOME
@given(data=st.data())
def test_a_damaged_checkpoint(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    bad = tmp_path_factory.mktemp("bad") / "bad.ckpt"
    bad.write_bytes(data.draw(damage(checkpoint.read_bytes())))
    with contextlib.suppress(UsageError):
        task_of(read_checkpoint(bad), bad)


@FEW
@given(
    key=st.sampled_from(["model_config", "codec", "state_dict", "exact", "loops", "hyper_parameters"]),
    value=plain_values,
)
def test_a_checkpoint_with_random_parts(
    checkpoint: Path, tmp_path_factory: pytest.TempPathFactory, key: str, value: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path_factory.mktemp("bad") / "bad.ckpt"
    torch.save({**read_checkpoint(checkpoint), key: value}, bad)
    run_command(["classify", str(bad), "a text"], capsys)


@FEW
@given(value=plain_values, step=plain_values)
def test_a_run_folder_with_a_random_checkpoint(
    checkpoint: Path, tmp_path_factory: pytest.TempPathFactory, value: Any, step: Any
) -> None:
    folder = tmp_path_factory.mktemp("run")
    (folder / "checkpoints").mkdir()
    (folder / "config.yaml").write_text("{}")
    torch.save({**read_checkpoint(checkpoint), "exact": value, "global_step": step}, folder / "checkpoints/last.ckpt")
    with contextlib.suppress(UsageError):
        ResumePoint.of(folder)


@pytest.fixture(scope="module")
def published(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of an exported model."""
    pytest.importorskip("huggingface_hub", reason="needs the extra `export`")
    folder = tmp_path_factory.mktemp("published") / "model"
    assert main(["export", str(checkpoint), str(folder)]) == 0
    return folder


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
@SOME
@given(data=st.data())
def test_a_damaged_published_model(
    published: Path, tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject
) -> None:
    from fna_lightning.integrations.hub import PublishedModel

    folder = tmp_path_factory.mktemp("bad") / "model"
    shutil.copytree(published, folder)
    (folder / name).write_bytes(data.draw(damage((published / name).read_bytes())))
    with contextlib.suppress(UsageError):
        PublishedModel.from_pretrained(folder)


def paths(tree: Any, prefix: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Return the key path of every value in nested dictionaries."""
    key_paths = [prefix] if prefix else []
    if isinstance(tree, dict):
        for key, value in tree.items():
            key_paths += paths(value, (*prefix, key))
    return key_paths


SHIPPED = yaml.safe_load(shipped_configs()["reviews_fna.yaml"].read_text())


@SOME
@given(where=st.sampled_from(paths(SHIPPED)), value=plain_values)
def test_a_configuration_with_a_random_value(
    where: tuple[str, ...], value: Any, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    config = json.loads(json.dumps(SHIPPED))
    inner = config
    for key in where[:-1]:
        inner = inner[key]
    inner[where[-1]] = value
    path = tmp_path_factory.mktemp("config") / "bad.yaml"
    path.write_text(yaml.safe_dump(config))
    # parse and check only, because training with a valid value could take an hour
    run_command(["fit", "--config", str(path), "--print_config"], capsys)


@SOME
@given(text=st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=60) | st.binary(max_size=60))
def test_a_configuration_of_random_text(
    text: str | bytes, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path_factory.mktemp("config") / "bad.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    run_command(["fit", "--config", str(path), "--print_config"], capsys)


@FEW
@given(data=st.data())
def test_a_damaged_data_file(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = tmp_path_factory.mktemp("data")
    buffer = io.BytesIO()
    pq.write_table(pa.table({"text": ["a b", "c"] * 20, "label": [0, 1] * 20}), buffer)
    for split in ("train", "test"):
        (folder / f"{split}-0.parquet").write_bytes(buffer.getvalue())
    (folder / "train-0.parquet").write_bytes(data.draw(damage(buffer.getvalue())))
    with contextlib.suppress(UsageError):
        splits = TextSource(str(folder), 2).read()
        assert all(isinstance(text, str) for text in splits["train"][0])
