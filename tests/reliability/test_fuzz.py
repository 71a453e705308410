"""Files that are damaged or made up: one sentence, exit code 2, nothing run, no traceback, no hang.

A few examples in CI; on demand many: FNA_EXAMPLES=200 pytest tests/reliability/test_fuzz.py --timeout 3600
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

patient = settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=examples(15))
FEW = settings(patient, max_examples=examples(8))

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real checkpoint to be damaged."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FNA_RUN_DIR", "")
        return train_tiny(tmp_path_factory.mktemp("run"), "--trainer.callbacks=[]", "--model.encoder.dim=8")


def outcome(argv: list[str], capsys: pytest.CaptureFixture[str]) -> int:
    """Run a command and see that it ends as it should, whatever it was given."""
    code = main(argv)
    said = capsys.readouterr().err
    assert "Traceback" not in said
    assert code in (0, 2)
    if code == 2:
        assert len(re.findall(r"^fna-lightning: error: .+", said, flags=re.MULTILINE)) == 1, said
    return code


@st.composite
def damage(draw: st.DrawFn, content: bytes) -> bytes:
    """Draw a damaged version of a file: cut off, bits flipped, a piece lost or doubled."""
    kind = draw(st.sampled_from(["cut", "flip", "lose", "double"]))
    place = draw(st.integers(0, len(content) - 1))
    if kind == "cut":
        return content[:place]
    if kind == "flip":
        places = draw(st.lists(st.integers(0, 8 * len(content) - 1), min_size=1, max_size=20))
        found = bytearray(content)
        for bit in places:
            found[bit // 8] ^= 1 << bit % 8
        return bytes(found)
    size = draw(st.integers(1, 500))
    piece = content[place : place + size]
    return content[:place] + (piece + piece if kind == "double" else b"") + content[place + size :]


@patient
@given(data=st.data())
def test_a_damaged_checkpoint(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    bad = tmp_path_factory.mktemp("bad") / "bad.ckpt"
    bad.write_bytes(data.draw(damage(checkpoint.read_bytes())))
    with contextlib.suppress(UsageError):
        found = read_checkpoint(bad)
        task_of(found, bad)


@FEW
@given(key=st.sampled_from(["model_config", "codec", "state_dict", "exact", "loops", "hyper_parameters"]), value=plain)
def test_a_checkpoint_with_made_up_parts(
    checkpoint: Path, tmp_path_factory: pytest.TempPathFactory, key: str, value: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path_factory.mktemp("bad") / "bad.ckpt"
    torch.save({**read_checkpoint(checkpoint), key: value}, bad)
    outcome(["classify", str(bad), "a text"], capsys)


@FEW
@given(value=plain, step=plain)
def test_a_run_folder_with_a_made_up_checkpoint(
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
    """A published model to be damaged."""
    pytest.importorskip("huggingface_hub", reason="needs the extra `export`")
    folder = tmp_path_factory.mktemp("published") / "model"
    assert main(["export", str(checkpoint), str(folder)]) == 0
    return folder


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
@patient
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
    found = [prefix] if prefix else []
    if isinstance(tree, dict):
        for key, value in tree.items():
            found += paths(value, (*prefix, key))
    return found


SHIPPED = yaml.safe_load(shipped_configs()["reviews_fna.yaml"].read_text())


@patient
@given(where=st.sampled_from(paths(SHIPPED)), value=plain)
def test_a_made_up_configuration(
    where: tuple[str, ...], value: Any, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    config = json.loads(json.dumps(SHIPPED))
    inner = config
    for key in where[:-1]:
        inner = inner[key]
    inner[where[-1]] = value
    path = tmp_path_factory.mktemp("config") / "bad.yaml"
    path.write_text(yaml.safe_dump(config))
    # parsed and checked; nothing is trained, so that a valid draw does not take an hour
    outcome(["fit", "--config", str(path), "--print_config"], capsys)


@patient
@given(text=st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=60) | st.binary(max_size=60))
def test_a_configuration_of_noise(
    text: str | bytes, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path_factory.mktemp("config") / "bad.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    outcome(["fit", "--config", str(path), "--print_config"], capsys)


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
        found = TextSource(str(folder), 2).read()
        assert all(isinstance(text, str) for text in found["train"][0])
