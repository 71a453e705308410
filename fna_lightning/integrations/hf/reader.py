"""Adapter that lets `analyze` study a transformers model with its tokenizer.

A model with FNA is studied unchanged. Any other model keeps its dot-product attention, computed in attention cores so
that it can be recorded. For an encoder-decoder, the encoder is studied.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, AutoTokenizer, PreTrainedModel

from fna_lightning.attention import DotProduct
from fna_lightning.errors import UsageError, first_line
from fna_lightning.integrations.hf.layers import add_core, interface_layers, refuse_unsupported
from fna_lightning.integrations.hf.settings import NAME


class Reader(nn.Module):
    """Maps token ids and lengths to logits.

    The logits are those of the classes for a classifier, of the next token for a language model, and of one unnamed
    class for a model without a head.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Map (B, N) token ids, of which the first ``lengths`` are not padding, to (B, C) logits."""
        mask = (torch.arange(tokens.size(1), device=tokens.device) < lengths[:, None]).long()
        model = self.model.get_encoder() if self.model.config.is_encoder_decoder else self.model
        logits = getattr(model(input_ids=tokens, attention_mask=mask), "logits", None)
        if logits is None:
            return torch.zeros(len(tokens), 1)
        if logits.dim() == 2:
            return logits
        return logits[torch.arange(len(tokens)), (lengths - 1).clamp(min=0)]


@dataclass(frozen=True)
class TokenizerCodec:
    """A transformers tokenizer with the class names of a model, which are empty for a model without classes."""

    fast: Any
    class_names: Sequence[str]
    max_length: int

    @cached_property
    def tokenizer(self) -> str:
        return str(sorted(self.fast.get_vocab().items()))

    def encode(self, text: str) -> list[int]:
        return self.fast(text)["input_ids"] if text.strip() else []

    def words(self, ids: list[int]) -> list[str]:
        return [self.fast.decode([token]).strip() or "␣" for token in ids]

    def spans(self, text: str) -> list[str]:
        return self.words(self.encode(text))


def open_reader(name: str) -> tuple[Reader, TokenizerCodec, Path]:
    """Load a model and its tokenizer from a folder or from the hub."""
    try:
        # Explicitly False: by default, transformers asks whether to execute code from the folder.
        config = AutoConfig.from_pretrained(name, trust_remote_code=False)
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"hf:{name} cannot be opened: {first_line(error)}; give a folder that model.save_pretrained and "
            "tokenizer.save_pretrained wrote"
        ) from error
    model_class = getattr(transformers, (config.architectures or [""])[0], None)
    if not (isinstance(model_class, type) and issubclass(model_class, PreTrainedModel)):
        model_class = AutoModel
    model = model_class.from_pretrained(name, trust_remote_code=False).eval()
    try:
        reader, codec = _reader(model, tokenizer)
    except ValueError as error:
        raise UsageError(f"hf:{name}: {error}") from error
    return reader, codec, Path(name)


def reader_of(model: PreTrainedModel, tokenizer: Any) -> tuple[Reader, TokenizerCodec]:
    """Return the adapter of a copy of ``model``, which itself stays as it is."""
    try:
        return _reader(copy.deepcopy(model).eval(), tokenizer)
    except ValueError as error:
        raise UsageError(str(error)) from error


def _reader(model: PreTrainedModel, tokenizer: Any) -> tuple[Reader, TokenizerCodec]:
    """Return the adapter of a model, whose attention is computed in attention cores from now on."""
    refuse_unsupported(model)
    if model.config._attn_implementation != NAME:
        for layer in interface_layers(model).values():
            add_core(layer, DotProduct())
        model.set_attn_implementation(NAME)
    names = _class_names(model, tokenizer)
    max_length = min(getattr(model.config, "max_position_embeddings", None) or 512, tokenizer.model_max_length)
    return Reader(model), TokenizerCodec(tokenizer, names, max_length)


def _class_names(model: PreTrainedModel, tokenizer: Any) -> Sequence[str]:
    with torch.no_grad():
        classes = Reader(model)(torch.ones(1, 2, dtype=torch.long), torch.tensor([2])).size(-1)
    labels = {int(number): str(name) for number, name in (model.config.id2label or {}).items()}
    if "Classification" in type(model).__name__ and len(labels) == classes:
        return [labels[number] for number in range(classes)]
    if classes == 1:
        return ()
    return [repr(tokenizer.decode([number])) for number in range(classes)]
