"""Studied modules of any kind: the user passes a batch, and each of its rows is an example."""

import logging
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from fna_lightning.analysis.heads import head_reports, rolled_out
from fna_lightning.analysis.models import Example, ModelInput, Scorer, StudiedModel, UserInputs, View
from fna_lightning.analysis.report import ModelReport
from fna_lightning.errors import UsageError
from fna_lightning.introspection.maps import AttentionMap, attention_maps
from fna_lightning.utils.trees import leaves, map_leaves

log = logging.getLogger(__name__)


class BatchModel(StudiedModel):
    """Any module with attention; the input of an example is a batch of one row.

    A dictionary is passed as keyword arguments and a tuple as arguments. Only self-attention with one graph per row and
    as many tokens as the first layer is studied.
    """

    kind: ClassVar[str] = "batch"
    unit: ClassVar[str] = "rows"
    argument: ClassVar[str] = "batch"
    option: ClassVar[str] = ""
    truncatable: ClassVar[bool] = False

    @property
    def comparable_key(self) -> object:
        return self.kind

    def check_inputs(self, inputs: UserInputs) -> None:
        if "texts" in inputs.kinds:
            raise UsageError(f"{self.path} reads texts only with its tokenizer; pass tokenizer=..., or batch=...")
        super().check_inputs(inputs)

    def examples(self, inputs: UserInputs, max_length: int) -> list[Example]:
        if inputs.batch is None:
            return []
        tensors = [leaf for leaf in leaves(inputs.batch) if isinstance(leaf, Tensor) and leaf.ndim]
        if not tensors or not len(tensors[0]):
            raise UsageError(
                f"batch must be a tensor, a tuple or a dictionary of tensors with at least one row, got "
                f"{type(inputs.batch).__name__}; pass the input of the forward pass of {type(self.task).__name__}"
            )
        rows = len(tensors[0])

        def row(index: int) -> ModelInput:
            def take(leaf: Any) -> Any:
                is_row = isinstance(leaf, Tensor) and leaf.ndim and len(leaf) == rows
                return leaf[index : index + 1] if is_row else leaf

            return map_leaves(take, inputs.batch)

        return [Example(f"row {index + 1}", row(index), []) for index in range(rows)]

    def run(self, model_input: ModelInput) -> Any:
        """Return the output of the module."""
        if isinstance(model_input, Mapping):
            return self.task(**model_input)
        return self.task(*model_input) if isinstance(model_input, tuple | list) else self.task(model_input)

    def maps(self, model_input: ModelInput) -> dict[str, AttentionMap]:
        return self._outputs_and_maps(model_input)[1]

    def _outputs_and_maps(self, model_input: ModelInput) -> tuple[Any, dict[str, AttentionMap]]:
        outputs: list[Any] = []
        maps = self.self_attention(attention_maps(self.task, lambda: outputs.append(self.run(model_input))))
        graphs = {name: layer for name, layer in maps.items() if len(layer.weights) == 1}
        if not graphs:
            raise UsageError(
                f"{self.path} has no self-attention with one graph per row that could be recorded; layers of this "
                "package, torch.nn.MultiheadAttention and calls of scaled_dot_product_attention are (for a "
                "transformers model call set_attn_implementation('sdpa') first)"
            )
        size = next(iter(graphs.values())).weights.size(-1)
        if skipped := [name for name in maps if name not in graphs or graphs[name].weights.size(-1) != size]:
            log.warning("%s: %s have other tokens than the first layer and are left out", self.path, ", ".join(skipped))
        real = _real_tokens(model_input, size)
        return outputs[0], {
            name: AttentionMap(layer.weights if real is None else layer.weights[..., real, :][..., real], None, True)
            for name, layer in graphs.items()
            if layer.weights.size(-1) == size
        }

    def split_example(self, item: Any, title: str, max_length: int) -> Example | None:
        # There are no items, see ``data``.
        return None

    def data(self) -> Any:
        raise UsageError(f"{self.path} is a module without a data set; pass batch=..., the input of its forward pass")

    def views(self, example: Example) -> list[View]:
        size = next(iter(self.maps(example.input).values())).weights.size(-1)
        words = [str(number + 1) for number in range(size)]
        ids = example.input.get("input_ids") if isinstance(example.input, Mapping) else None
        if isinstance(ids, Tensor) and ids.ndim == 2:
            real = _real_tokens(example.input, ids.size(1))
            chosen = ids[0] if real is None else ids[0][real]
            words = [str(token) for token in chosen.tolist()] if len(chosen) == size else words
        return [View(example.title, words, lambda model, stored: model.report(example, len(words), stored))]

    def report(self, example: Example, size: int, stored: bool) -> ModelReport:
        """Return the heads of this module on one row, and the class that its logits predict, if it has any."""
        outputs, maps = self._outputs_and_maps(example.input)
        other = next(iter(maps.values())).weights.size(-1)
        if other != size:
            raise UsageError(f"{self.path} has {other} tokens and the first model {size}, so they cannot be compared")
        heads, flow = head_reports(maps, stored), rolled_out(maps, stored)
        logits = getattr(outputs, "logits", None)
        if not isinstance(logits, Tensor) or logits.ndim != 2:
            return ModelReport("", float("nan"), None, {}, heads, rollout=flow)
        values, numbers = logits[0].softmax(dim=-1).topk(min(10, logits.size(-1)))
        best = {f"class {number}": value for number, value in zip(numbers.tolist(), values.tolist(), strict=True)}
        return ModelReport(f"class {numbers[0]}", values[0].item(), None, best, heads, rollout=flow)

    def scorer(self, examples: list[Example]) -> Scorer | None:
        return None


def _real_tokens(model_input: ModelInput, size: int) -> Tensor | None:
    """Return the positions that an "attention_mask" of (1, size) does not mark as padding; None without such a mask."""
    mask = model_input.get("attention_mask") if isinstance(model_input, Mapping) else None
    return torch.nonzero(mask[0]).flatten() if isinstance(mask, Tensor) and mask.shape == (1, size) else None
