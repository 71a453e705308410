"""Survey of every model name of timm: which attention layers FNA replaces, refuses, or leaves unchanged unnoticed.

Run by hand; it takes about half an hour on one core and downloads nothing:

    python tests/surveys/timm_models.py timm.csv [name pattern ...]

Models are built with random weights, on the meta device where possible. The check does not use what ``enable`` reports:
it records every call of scaled_dot_product_attention, softmax and products of two activations that reaches PyTorch
during a forward pass, with the modules that are running.
"""

import fna_lightning  # noqa: F401 - before anything imports torchvision

# isort: split

import csv
import gc
import logging
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import timm
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode

from fna_lightning.attention import ExternalAttention
from fna_lightning.integrations.timm import enable, inspect_model
from fna_lightning.integrations.timm.enable import random_images
from fna_lightning.integrations.timm.refusals import NO_ATTENTION

SOFTMAXES = {torch.softmax, Tensor.softmax, F.softmax, F.scaled_dot_product_attention}
PRODUCTS = {torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.bmm, Tensor.bmm, torch.einsum, torch.baddbmm}


class Recorder(TorchFunctionMode):
    """Records the calls of attention operators, each with the innermost module that makes it."""

    def __init__(self, names: dict[nn.Module, str]) -> None:
        super().__init__()
        self.names = names
        self.running: list[nn.Module] = []
        self.softmaxes: Counter[tuple[str, str]] = Counter()
        self.products: Counter[tuple[str, str]] = Counter()
        self.cores = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        in_core = any(isinstance(module, ExternalAttention) for module in self.running)
        if func in SOFTMAXES | PRODUCTS and not in_core:
            # nn.Softmax computes the softmax of the module that contains it.
            host = next((m for m in reversed(self.running) if not isinstance(m, nn.Softmax | nn.Dropout)), None)
            entry = (self.names.get(host, "?"), type(host).__name__)
            operands = [value for value in torch.utils._pytree.tree_leaves(args) if isinstance(value, Tensor)]
            if func in SOFTMAXES:
                self.softmaxes[entry] += 1
            elif not any(isinstance(value, nn.Parameter) for value in operands):
                self.products[entry] += 1
        return func(*args, **(kwargs or {}))


@contextmanager
def recording(model: nn.Module) -> Iterator[Recorder]:
    """Record the calls of one forward pass."""
    recorder = Recorder({module: name for name, module in model.named_modules()})

    def start(module: nn.Module, _: Any) -> None:
        recorder.running.append(module)
        recorder.cores += isinstance(module, ExternalAttention)

    def stop(module: nn.Module, *_: Any) -> None:
        recorder.running.pop()

    handles = [register_module_forward_pre_hook(start), register_module_forward_hook(stop)]
    try:
        with recorder, torch.no_grad():
            yield recorder
    finally:
        for handle in handles:
            handle.remove()


@dataclass
class Row:
    """The result for one model name.

    ``softmaxes_before`` and ``softmaxes_after`` count the calls of softmax and scaled_dot_product_attention outside
    attention cores; ``unnoticed`` names what computes attention and is neither replaced nor refused.
    """

    name: str
    status: str = ""
    built: str = ""
    parameters: int = 0
    replaced: int = 0
    refused: int = 0
    classes: str = ""
    reasons: str = ""
    softmaxes_before: int = 0
    softmaxes_after: int = 0
    unnoticed: str = ""
    seconds: float = 0.0


def build(name: str) -> tuple[nn.Module, str]:
    """Return a model in evaluation mode and the device on which it was built."""
    try:
        with torch.device("meta"):
            return timm.create_model(name, pretrained=False).eval(), "meta"
    except Exception:
        return timm.create_model(name, pretrained=False).eval(), "cpu"


def forward(model: nn.Module, device: str) -> Recorder:
    """Run a model on one image and return the record."""
    image = random_images(model)[:1].to(device)
    with recording(model) as recorder:
        model(image)
    return recorder


def survey(name: str) -> Row:
    """Build one model, enable FNA in it and compare what runs with what was reported."""
    row = Row(name)
    started = time.monotonic()
    model, row.built = build(name)
    row.parameters = sum(parameter.numel() for parameter in model.parameters())
    before = forward(model, row.built)
    layers = inspect_model(model)
    row.replaced, row.refused = len(layers.replaceable) + len(layers.multihead), len(layers.refused)
    row.classes = " ".join(sorted({type(layer).__name__ for layer in layers.replaceable.values()}))
    row.reasons = "; ".join(sorted(set(layers.refused.values())))
    no_attention = {key.rpartition(".")[2] for key in NO_ATTENTION}
    try:
        enable(model)
        row.status = "replaced"
    except ValueError as error:
        row.status = "partly" if "partial=True" in str(error) else "refused" if row.refused else "no attention"
        if row.status == "partly":
            enable(model, partial=True)
    after = forward(model, row.built)
    row.softmaxes_before, row.softmaxes_after = before.softmaxes.total(), after.softmaxes.total()
    expected = len(layers.replaceable) + len(layers.multihead)
    problems = [] if after.cores == expected else [f"{after.cores} cores ran, {expected} expected"]
    # A softmax may remain only in a refused layer, a product also in a replaced one: position logits of a query.
    for calls, allowed in ((after.softmaxes, layers.refused), (after.products, layers.refused | layers.replaceable)):
        problems += [
            f"{module or 'the model'} ({kind})"
            for module, kind in calls
            if kind not in no_attention and not _inside(module, allowed)
        ]
    if row.status == "no attention" and before.softmaxes.keys() != after.softmaxes.keys():
        problems.append("the model changed")
    row.unnoticed = "; ".join(sorted(set(problems)))
    row.seconds = round(time.monotonic() - started, 2)
    return row


def _inside(name: str, layers: Mapping[str, Any]) -> bool:
    """Return whether a module is one of the layers, or part of one."""
    return any(name == layer or name.startswith(f"{layer}.") for layer in layers)


def main() -> None:
    """Survey all names, or those that match a pattern, and write a table."""
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    path, patterns = Path(sys.argv[1]), sys.argv[2:] or ["*"]
    names = [name for name in timm.list_models() if any(fnmatch(name, pattern) for pattern in patterns)]
    columns = list(Row.__dataclass_fields__)
    counts: Counter[str] = Counter()
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        for name in names:
            try:
                row = survey(name)
            except Exception as error:
                row = Row(name, "not built", reasons=f"{type(error).__name__}: {str(error).splitlines()[0][:100]}")
            counts[row.status] += 1
            counts["unnoticed"] += bool(row.unnoticed)
            writer.writerow([getattr(row, column) for column in columns])
            file.flush()
            gc.collect()
    print(f"timm {timm.__version__}, torch {torch.__version__}, {len(names)} names: {dict(counts)}")


if __name__ == "__main__":
    main()
