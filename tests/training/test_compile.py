"""``--compile true``: same checkpoints, same values, and callbacks still see the attention layers."""

from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from fna_lightning.cli import main
from fna_lightning.config.instantiate import from_config
from fna_lightning.introspection.ablation import ablated
from fna_lightning.introspection.maps import attention_maps
from fna_lightning.task import Task

from helpers.tiny_runs import TINY

CONFIGS = {
    "reviews_fna.yaml": ["data.train_size=16", "data.eval_size=8", "data.batch_size=4"],
    "digits_fna.yaml": ["data.batch_size=8"],
    "numbers_fna.yaml": ["data.train_size=16", "data.eval_size=8", "data.batch_tokens=64"],
    "terrain_fna.yaml": ["data.batch_size=4"],
}


@pytest.mark.parametrize("config", CONFIGS)
def test_a_compiled_task_has_the_same_keys_loss_and_attention(config: str) -> None:
    experiment = from_config(config, CONFIGS[config])
    experiment.data.setup("fit")
    task, batch = experiment.task.eval(), next(iter(experiment.data.train_dataloader()))
    torch.manual_seed(0)  # images are augmented
    keys, loss = list(task.state_dict()), task.loss(batch, "train")
    maps = attention_maps(task, lambda: task.probe(batch))
    graphs: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> object:
        graphs.append(graph)
        return graph.forward

    task.compile_networks(backend=backend)
    assert list(task.state_dict()) == keys
    torch.manual_seed(0)
    assert_close(task.loss(batch, "train"), loss)
    compiled = len(graphs)
    assert compiled >= len([network for network in task.networks() if len(list(network.parameters()))])
    # Compiled code would not call the hooks that record the weights or replace the output.
    compiled_maps = attention_maps(task, lambda: task.probe(batch))
    assert set(compiled_maps) == set(maps)
    for name, layer_map in maps.items():
        assert_close(compiled_maps[name].weights, layer_map.weights)
    with ablated(task, 0.9, "edges", torch.Generator().manual_seed(0)):
        assert not torch.equal(task.loss(batch, "train"), loss)
    assert len(graphs) == compiled
    torch.compiler.reset()


@pytest.mark.e2e
def test_fit_and_resume_with_compiled_networks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_networks = Task.compile_networks
    # without the C++ compiler of inductor, which takes a minute
    monkeypatch.setattr(Task, "compile_networks", lambda task: compile_networks(task, backend="eager"))
    folder = ["--trainer.enable_progress_bar=false", "--config", "reviews_fna.yaml", "--model.encoder.dropout=0"]
    folder += ["--model.embedding.dropout=0", *(f"--{option}" for option in TINY)]
    runs = {}
    for name, options in {"plain": [], "compiled": ["--compile", "true"]}.items():
        assert main(["fit", *folder, f"--trainer.default_root_dir={tmp_path / name}", *options]) == 0
        runs[name] = tmp_path / name / "reviews_fna" / "version_0"
    states = [torch.load(run / "checkpoints" / "last.ckpt", weights_only=True) for run in runs.values()]
    assert list(states[0]["state_dict"]) == list(states[1]["state_dict"])
    assert states[0]["model_config"] == states[1]["model_config"]
    assert_close(states[0]["state_dict"], states[1]["state_dict"], rtol=1e-3, atol=1e-4)
    assert "compile: true" in (runs["compiled"] / "config.yaml").read_text()
    assert main(["resume", str(runs["compiled"]), "--trainer.max_epochs=2"]) == 0
    resumed = torch.load(runs["compiled"] / "checkpoints" / "last.ckpt", weights_only=True)
    assert resumed["epoch"] > states[1]["epoch"]
    # the option can be changed when a run is resumed
    assert main(["resume", str(runs["compiled"]), "--trainer.max_epochs=3", "--compile=false"]) == 0
    assert "attention/spectral_gap" in (runs["compiled"] / "metrics.csv").read_text()
    torch.compiler.reset()
