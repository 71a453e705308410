"""Survey of every model name of timm: which attention layers FNA replaces, refuses, or leaves unchanged unnoticed.

Run by hand; it takes about a quarter of an hour on one core and downloads nothing:

    python tests/surveys/timm_models.py docs/results/timm [name pattern ...]

It writes a table (.csv) and a page with the counts (.md). Names that are already in the table are not built again.

Models are built with random weights at their own input size, on the meta device, or on the CPU with a small image if a
model reads numbers from its tensors. The check does not use what ``enable`` reports: it records every call of
scaled_dot_product_attention, softmax and products of two activations that reaches PyTorch during a forward pass, with
the modules that are running.
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
from dataclasses import asdict, dataclass, fields
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
# side of an image on the CPU
SMALL = 96
# products with matrices that depend on positions only: angles of rotary embeddings (Eva computes those of mixed rotary
# embeddings itself), average pooling
POSITIONS = {"Eva", "Gemma4RotaryEmbedding2D", "Gemma4VisionPooler"}
PRODUCTS = {torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.bmm, Tensor.bmm, torch.einsum, torch.baddbmm}
SAME_SHAPE = {F.layer_norm, F.gelu, F.dropout, Tensor.clamp_, Tensor.erfinv_, Tensor.normal_, Tensor.uniform_}
RECORDED = SOFTMAXES | PRODUCTS


class ShapesOnly(TorchFunctionMode):
    """Skips operators that do not change a shape and are slow on the meta device, which has no values."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in SAME_SHAPE and args[0].device.type == "meta":
            return args[0]
        return func(*args, **(kwargs or {}))


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
        if func in RECORDED and not any(isinstance(module, ExternalAttention) for module in self.running):
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
        with recorder, ShapesOnly(), torch.no_grad():
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


def build(name: str, device: str) -> nn.Module:
    """Return a model with random weights in evaluation mode."""
    if device == "cpu":
        return timm.create_model(name, pretrained=False).eval()
    with torch.device(device), ShapesOnly():
        return timm.create_model(name, pretrained=False).eval()


def forward(model: nn.Module, device: str) -> Recorder:
    """Run a model on one image and return the record."""
    image = random_images(model)[:1].to(device)
    if device == "cpu":
        image = image[..., :SMALL, :SMALL]
    with recording(model) as recorder:
        model(image)
    return recorder


def survey(name: str) -> Row:
    """Build one model, enable FNA in it and compare what runs with what was reported."""
    try:
        return survey_on(name, "meta")
    except (RuntimeError, NotImplementedError):
        return survey_on(name, "cpu")


def survey_on(name: str, device: str) -> Row:
    """Survey a model on a device; some models read numbers from their tensors, which fails on the meta device."""
    row = Row(name, built=device)
    started = time.monotonic()
    model = build(name, device)
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
    for calls, allowed, kinds in (
        (after.softmaxes, layers.refused, no_attention),
        (after.products, layers.refused | layers.replaceable, no_attention | POSITIONS),
    ):
        problems += [
            f"{module or 'the model'} ({kind})"
            for module, kind in calls
            if kind not in kinds and not _inside(module, allowed)
        ]
    if row.status == "no attention" and before.softmaxes.keys() != after.softmaxes.keys():
        problems.append("the model changed")
    row.unnoticed = "; ".join(sorted(set(problems)))
    row.seconds = round(time.monotonic() - started, 2)
    return row


def _inside(name: str, layers: Mapping[str, Any]) -> bool:
    """Return whether a module is one of the layers, or part of one."""
    return any(name == layer or name.startswith(f"{layer}.") for layer in layers)


MEANINGS = {
    "replaced": "FNA replaces every attention layer",
    "partly": "FNA replaces some layers; the others are named, an error without `partial=True`",
    "refused": "FNA can replace none of the attention layers; an error that names them",
    "no attention": "convolutional networks and others; an error that says so",
    "not built": "the model cannot be built or run with random weights",
}
HEAD = """# FNA in every timm model

    python tests/surveys/timm_models.py docs/results/timm

`fna_lightning.integrations.timm.enable` on all {names} names of `timm.list_models()`, timm {timm}, torch {torch}.
Each model is built with random weights and run once before and once after `enable`, at its own input size on the meta
device ({cpu} models on the CPU with a small image).

| result | models | |
|---|---|---|
{counts}
| attention left unchanged unnoticed | {unnoticed} | |

The last line does not use what `enable` reports: every call of `scaled_dot_product_attention` and softmax, and every
product of two activations, is recorded during the second run. Outside FNA they occur only in refused layers, gates of
channels (split attention, selective kernels, global context), state-space layers and, products only, position
logits of replaced layers, angles of rotary embeddings and average pooling. The {replaced} fully replaced models call
softmax or `scaled_dot_product_attention` {before} times before `enable` and {after} times after it.

[All rows](timm.csv)
"""


def page(rows: list[Row]) -> str:
    """Return the counts as a page."""
    counts = Counter(row.status for row in rows)
    replaced = [row for row in rows if row.status == "replaced"]
    lines = [
        HEAD.format(
            names=len(rows),
            timm=timm.__version__,
            torch=torch.__version__,
            cpu=sum(row.built == "cpu" for row in rows),
            counts="\n".join(f"| {status} | {counts[status]} | {text} |" for status, text in MEANINGS.items()),
            unnoticed=sum(bool(row.unnoticed) for row in rows),
            replaced=len(replaced),
            before=sum(row.softmaxes_before for row in replaced),
            after=sum(row.softmaxes_after for row in replaced),
        )
    ]
    for status in ("partly", "refused", "not built"):
        reasons: dict[str, list[str]] = {}
        for row in rows:
            if row.status == status:
                reasons.setdefault(row.reasons, []).append(row.name)
        if reasons:
            lines += [f"## {status.capitalize()}", "", "| reason | models |", "|---|---|"]
            lines += [f"| {reason} | {', '.join(names)} |" for reason, names in sorted(reasons.items())] + [""]
    lines += ["## Replaced, by class of the layers", "", "| classes | models |", "|---|---|"]
    classes = Counter(row.classes for row in replaced)
    return "\n".join([*lines, *(f"| {kinds} | {count} |" for kinds, count in classes.most_common())]) + "\n"


def main() -> None:
    """Survey all names, or those that match a pattern, and write the table and the page."""
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    table, patterns = Path(sys.argv[1]).with_suffix(".csv"), sys.argv[2:] or ["*"]
    names = [name for name in timm.list_models() if any(fnmatch(name, pattern) for pattern in patterns)]
    rows = {row.name: row for row in read(table) if row.status != "not built"}
    for name in names:
        if name not in rows:
            try:
                rows[name] = survey(name)
            except Exception as error:
                reason = f"{type(error).__name__}: {str(error).splitlines()[0][:100]}"
                rows[name] = Row(name, "not built", reasons=reason)
            gc.collect()
            write(table, [rows[name] for name in names if name in rows])
    table.with_suffix(".md").write_text(page([rows[name] for name in names]))
    print(
        Counter(row.status for row in rows.values()), "unnoticed:", [row.name for row in rows.values() if row.unnoticed]
    )


def read(table: Path) -> list[Row]:
    """Return the rows of a table, none if there is no table yet."""
    if not table.exists():
        return []
    types = {column.name: column.type for column in fields(Row)}
    with table.open(newline="") as file:
        return [
            Row(**{name: types[name](value) for name, value in entry.items()})  # type: ignore[operator, arg-type]
            for entry in csv.DictReader(file)
        ]


def write(table: Path, rows: list[Row]) -> None:
    """Write the rows as a table."""
    with table.open("w", newline="") as file:
        writer = csv.DictWriter(file, [column.name for column in fields(Row)])
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)


if __name__ == "__main__":
    main()
