"""FiniteLoss: training stops before the optimizer step and the error names the origin."""

from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from torch import nn
from torchmetrics import MetricCollection

from fna_lightning.attention import DotProduct, MultiheadAttention
from fna_lightning.callbacks import FiniteLoss
from fna_lightning.callbacks.finite_loss import find_origin
from fna_lightning.errors import UsageError
from fna_lightning.task import Task

from helpers.linear_task import LinearTask, fit, new_trainer


def batch() -> Any:
    return torch.ones(2, 3), torch.ones(2)


def test_the_weights_stay_as_they_were(tmp_path: Path) -> None:
    class Overflow(L.Callback):
        def on_train_batch_start(self, trainer: L.Trainer, pl_module: LinearTask, *args: Any) -> None:
            if trainer.global_step == 3:
                pl_module.linear.weight.data.fill_(3e38)
                tasks.append(pl_module)

    tasks: list[LinearTask] = []
    with pytest.raises(
        UsageError, match=r"the loss is inf at step 3 \(epoch 0\), so training stops before the weights"
    ):
        fit(new_trainer(tmp_path, Overflow(), FiniteLoss()))
    assert torch.equal(tasks[0].linear.weight, torch.full((1, 3), 3e38))


def test_a_finite_loss_trains(tmp_path: Path) -> None:
    trainer = new_trainer(tmp_path, FiniteLoss())
    fit(trainer)
    assert trainer.global_step == 12


def test_the_origin_is_a_weight() -> None:
    task = LinearTask()
    task.linear.bias.data[0] = torch.inf
    assert find_origin(task, batch()) == "the weights linear.bias are not finite"


def test_the_origin_is_the_batch() -> None:
    inputs, targets = batch()
    inputs[1, 2] = torch.nan
    assert find_origin(LinearTask(), (inputs, targets)) == "the batch itself holds numbers that are not finite"


def test_the_origin_is_a_layer() -> None:
    task = LinearTask().eval()
    task.linear.weight.data.fill_(3e38)
    assert find_origin(task, batch()) == "it begins in the layer linear (Linear)"


def test_the_origin_is_the_loss() -> None:
    task = LinearTask().eval()
    task.linear.weight.data.fill_(1e30)
    assert find_origin(task, batch()) == "the outputs of all layers are finite, so the loss itself overflows"


class AttentionTask(Task):
    """One attention layer."""

    def __init__(self) -> None:
        super().__init__(MetricCollection({}))
        self.layer = MultiheadAttention(8, 4, DotProduct())

    def loss(self, batch: Any, stage: str) -> torch.Tensor:
        return self.layer(batch[0]).sum()


def test_the_origin_is_a_head() -> None:
    task = AttentionTask()
    tokens = torch.ones(2, 3, 8)
    with torch.no_grad():
        # two coordinates per head
        task.layer.value.weight[2:4] = 3e38
    assert find_origin(task, (tokens,)) == "it begins in the attention layer layer, head 1"
    with torch.no_grad():
        task.layer.value.weight[6:8] = 3e38
    assert find_origin(task, (tokens,)) == "it begins in the attention layer layer, heads 1, 3"


def test_the_origin_is_the_output_projection() -> None:
    task = AttentionTask()
    with torch.no_grad():
        task.layer.out.weight.fill_(3e38)
        task.layer.value.weight.fill_(1.0)
    assert (
        find_origin(task, (torch.ones(2, 3, 8),)) == "it begins in the attention layer layer, in its output projection"
    )


def test_hooks_are_removed() -> None:
    task = LinearTask()
    task.linear.weight.data.fill_(3e38)
    find_origin(task, batch())
    assert not [module for module in task.modules() if isinstance(module, nn.Module) and module._forward_hooks]
