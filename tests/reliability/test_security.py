"""Loading untrusted files never executes code: checkpoints, model configs, configurations, exported folders."""

import io
import json
import pickle
import socket
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.strategies import DDPStrategy, DeepSpeedStrategy, FSDPStrategy

from fna_lightning.checkpoints.load import load_task, read_checkpoint
from fna_lightning.cli import main
from fna_lightning.errors import UsageError
from fna_lightning.training.cli import refuse_unpickling

from helpers.tiny_runs import train_tiny

pytestmark = pytest.mark.e2e


class Malicious:
    """Creates the file ``trap`` when it is unpickled."""

    def __init__(self, trap: Path) -> None:
        self.trap = trap

    def __reduce__(self) -> Any:
        return (open, (str(self.trap), "w"))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoint of a run of one epoch, trained without network access."""
    folder = tmp_path_factory.mktemp("run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FNA_RUN_DIR", "")
        patch.setattr(socket, "create_connection", _no_network)
        patch.setattr(socket.socket, "connect", _no_network)
        patch.setattr(socket, "getaddrinfo", _no_network)
        return train_tiny(folder, "--trainer.callbacks=[]")


def _no_network(*args: object, **kwargs: object) -> None:
    raise AssertionError(f"network access: {args}")


def test_a_run_on_embedded_data_needs_no_network(checkpoint: Path) -> None:
    assert read_checkpoint(checkpoint)["global_step"] > 0


@pytest.mark.parametrize("where", ["whole", "inside"])
def test_a_malicious_pickle_is_refused(where: str, checkpoint: Path, tmp_path: Path) -> None:
    trap, bad = tmp_path / "trap", tmp_path / "bad.ckpt"
    if where == "whole":
        bad.write_bytes(pickle.dumps(Malicious(trap)))
    else:
        torch.save({**read_checkpoint(checkpoint), "callbacks": {"x": Malicious(trap)}}, bad)
    config = str(checkpoint.parents[1] / "config.yaml")
    with pytest.raises(UsageError, match="is not a checkpoint this program can trust or read"):
        read_checkpoint(bad)
    assert main(["test", "--config", config, f"--ckpt_path={bad}"]) == 2
    assert main(["fit", "--config", config, f"--ckpt_path={bad}"]) == 2
    assert main(["classify", str(bad), "text"]) == 2
    assert not trap.exists()


def test_messages_do_not_advise_unsafe_loading(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trap, bad = tmp_path / "trap", tmp_path / "bad.ckpt"
    torch.save({**read_checkpoint(checkpoint), "callbacks": {"x": Malicious(trap)}}, bad)
    config = str(checkpoint.parents[1] / "config.yaml")
    for argv in (["test", "--config", config, f"--ckpt_path={bad}"], ["classify", str(bad), "text"]):
        assert main(argv) == 2
        printed = capsys.readouterr().err
        assert "holds more than tensors and plain values (Unsupported global: GLOBAL io.open" in printed
        assert "weights_only" not in printed
    assert not trap.exists()


def test_no_settings_are_taken_from_a_checkpoint(checkpoint: Path, tmp_path: Path) -> None:
    # Lightning lets the hyperparameters of a checkpoint replace the configuration
    other = tmp_path / "other.ckpt"
    settings = {"_class_path": "ImageClassification", "pooling": "max"}
    torch.save({**read_checkpoint(checkpoint), "hyper_parameters": settings}, other)
    config = str(checkpoint.parents[1] / "config.yaml")
    more = ["--trainer.logger=false", f"--trainer.default_root_dir={tmp_path}"]
    assert main(["test", "--config", config, f"--ckpt_path={other}", *more]) == 0


def test_a_strategy_that_unpickles_checkpoints_is_refused(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Lightning's FSDP and model-parallel strategies bypass the CheckpointIO, also for folders of shards
    config, more = str(checkpoint.parents[1] / "config.yaml"), tmp_path / "more.yaml"
    more.write_text("trainer: {strategy: {class_path: lightning.pytorch.strategies.ModelParallelStrategy}, devices: 1}")
    for place in (checkpoint, tmp_path):
        assert main(["test", f"--config={config}", f"--config={more}", f"--ckpt_path={place}"]) == 2
        assert "ModelParallelStrategy loads checkpoints without this program's checks" in capsys.readouterr().err
    for strategy_class in (FSDPStrategy, DeepSpeedStrategy):
        with pytest.raises(UsageError, match=r"may run code stored in them; use .*ddp or fsdp2"):
            refuse_unpickling(strategy_class.__new__(strategy_class))
    refuse_unpickling(DDPStrategy())


@pytest.mark.parametrize("key", ["_instantiator", "_class_path"])
def test_hyperparameters_that_name_code_are_ignored(key: str, checkpoint: Path, tmp_path: Path) -> None:
    # Lightning up to 2.6.5 imported and called what these name
    bad = tmp_path / "bad.ckpt"
    trap = tmp_path / "trap"
    payload = {key: "os.mkdir", "_class_path": "os.mkdir", "_instantiator": "os.mkdir", "path": str(trap)}
    torch.save(
        {**read_checkpoint(checkpoint), "hyper_parameters": payload, "datamodule_hyper_parameters": payload}, bad
    )
    config = str(checkpoint.parents[1] / "config.yaml")
    load_task(bad)
    assert main(["test", "--config", config, f"--ckpt_path={bad}", "--trainer.logger=false"]) in (0, 2)
    assert not trap.exists()


@pytest.mark.parametrize(
    "model_config",
    [
        {"class_path": "os.mkdir", "init_args": {"path": "TRAP"}},
        {"class_path": "subprocess.Popen", "init_args": {"args": ["touch", "TRAP"]}},
        {"class_path": "TextClassification", "init_args": {"attention": {"class_path": "os.mkdir"}}},
    ],
    ids=lambda model_config: str(model_config)[:60],
)
def test_a_model_config_creates_tasks_only(model_config: dict[str, Any], checkpoint: Path, tmp_path: Path) -> None:
    bad, trap = tmp_path / "bad.ckpt", tmp_path / "trap"
    config = json.loads(json.dumps(model_config).replace("TRAP", str(trap)))
    torch.save({**read_checkpoint(checkpoint), "model_config": config}, bad)
    with pytest.raises(
        UsageError, match=r"model_config.* names '(os\.mkdir|subprocess\.Popen)', but a file may only name"
    ):
        load_task(bad)
    assert not trap.exists()


@pytest.mark.parametrize(
    "text",
    [
        "!!python/object/apply:os.mkdir ['TRAP']",
        "trainer: !!python/object/new:os.mkdir ['TRAP']",
        "model: !!python/name:os.system",
        "data:\n  class_path: os.mkdir\n  init_args: {path: TRAP}",
        "trainer:\n  callbacks:\n  - class_path: os.mkdir\n    init_args: {path: TRAP}",
    ],
)
def test_a_configuration_runs_no_code(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trap, config = tmp_path / "trap", tmp_path / "bad.yaml"
    config.write_text(text.replace("TRAP", str(trap)))
    assert main(["fit", "--config", str(config)]) == 2
    assert "Traceback" not in capsys.readouterr().err
    assert not trap.exists()


@pytest.mark.parametrize("address", ["https://example.org/a.ckpt", "s3://bucket/a.ckpt", "hf://a/b.ckpt"])
def test_a_url_is_not_a_checkpoint(
    address: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(socket.socket, "connect", _no_network)
    monkeypatch.chdir(tmp_path)
    for argv in (["classify", address, "x"], ["test", "--config=reviews_dp.yaml", f"--ckpt_path={address}"]):
        assert main(argv) == 2
        assert f"a checkpoint must be a file, got the address {address}; download it first" in capsys.readouterr().err


@pytest.fixture
def published(checkpoint: Path, tmp_path: Path) -> Path:
    """Folder written by ``export``."""
    pytest.importorskip("huggingface_hub", reason="needs the extra `export`")
    folder = tmp_path / "published"
    assert main(["export", str(checkpoint), str(folder)]) == 0
    return folder


def load_published(name: str | Path, **options: Any) -> Any:
    from fna_lightning.integrations.hub import PublishedModel

    return PublishedModel.from_pretrained(name, **options)


def test_an_exported_folder_gives_the_same_model(checkpoint: Path, published: Path) -> None:
    task, model = load_task(checkpoint), load_published(published)
    assert type(model.task) is type(task)
    assert model.model_config == model.task.model_config == task.model_config
    assert not model.training
    tokens, lengths = torch.randint(2, 50, (3, 7)), torch.tensor([7, 5, 1])
    assert torch.equal(model(tokens, lengths), task(tokens, lengths))


@pytest.mark.parametrize("content", [b"", b"\xff" * 64, pickle.dumps({"a": 1})])
def test_invalid_safetensors_files_are_named(content: bytes, published: Path) -> None:
    (published / "model.safetensors").write_bytes(content)
    with pytest.raises(
        UsageError, match=r"model\.safetensors is not a readable safetensors file: .+; export the model again"
    ):
        load_published(published)


@pytest.mark.parametrize("change", ["missing", "unknown", "other shape"])
def test_exported_weights_of_another_model_are_named(change: str, published: Path) -> None:
    from safetensors.torch import load_file, save_file

    path = published / "model.safetensors"
    weights = load_file(path)
    if change == "unknown":
        weights["task.more"] = torch.zeros(2)
    else:
        bias = weights.pop("task.head.bias")
        weights |= {"task.head.bias": torch.zeros(len(bias) + 1)} if change == "other shape" else {}
    save_file(weights, path)
    with pytest.raises(
        UsageError,
        match=r"the weights in .+ do not fit the model_config in config\.json: .*(more|bias).*; both must come from",
    ):
        load_published(published)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (None, r"has no config\.json; give a folder that `fna-lightning export` wrote"),
        ("{", r"config\.json cannot be read as JSON: .+; export the model again"),
        ("{}", r"config\.json carries no model_config: it was not written by .+; load the model with its own class"),
        (
            '{"model_config": {"class_path": "os.mkdir", "init_args": {"path": "TRAP"}}}',
            r"cannot be built: .*os\.mkdir",
        ),
    ],
)
def test_folders_without_a_valid_config_are_refused(config: str | None, words: str, published: Path) -> None:
    path = published / "config.json"
    path.unlink()
    if config is not None:
        path.write_text(config.replace("TRAP", str(published / "trap")))
    with pytest.raises(UsageError, match=words):
        load_published(published)
    assert not (published / "trap").exists()


def test_a_folder_without_weights_is_refused(published: Path) -> None:
    (published / "model.safetensors").rename(published / "pytorch_model.bin")
    with pytest.raises(UsageError, match=r"has no model\.safetensors; give a folder that"):
        load_published(published)


def test_names_that_are_neither_a_folder_nor_on_the_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub", reason="needs the extra `export`")
    monkeypatch.setattr(socket.socket, "connect", _no_network)
    address = "https://example.org/a"
    with pytest.raises(
        UsageError, match=f"a folder or a name on the hub, got the address {address}; download it first"
    ):
        load_published(address)
    for name in (tmp_path / "none", "someone/not-downloaded-yet"):
        with pytest.raises(UsageError, match=f"'{name}' is not a folder, and the hub has no model .+; give a folder"):
            load_published(name, cache_dir=tmp_path, local_files_only=True)


def test_a_checkpoint_holds_plain_values_only(checkpoint: Path) -> None:
    """A checkpoint loads with weights_only, and nothing but torch has extended the list of safe classes."""
    assert {cls.__module__.partition(".")[0] for cls in torch.serialization.get_safe_globals()} <= {"torch"}
    for name in ("best", "last"):
        content = torch.load(io.BytesIO((checkpoint.parent / f"{name}.ckpt").read_bytes()), weights_only=True)
        assert "model_config" in content
