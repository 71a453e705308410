"""A transformers model and its tokenizer as `analyze` reads texts with them.

A model with FNA is studied as it is; any other with its own dot-product attention, which is only computed where it can
be watched. Of an encoder-decoder the encoder is studied.
"""

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
from fna_lightning.integrations.hf.layers import interface_layers, put_site, refuse_unsupported
from fna_lightning.integrations.hf.settings import NAME

NO_CLASSES = ("no classes",)


class Reader(nn.Module):
    """Maps token ids and lengths to logits, whatever the model answers.

    That is the classes of a classifier, the next token of a language model, and one class without a name of a model
    that has no such head.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Map (B, N) token ids, of which the first ``lengths`` are real, to (B, C) logits."""
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
    """A tokenizer of transformers with the names of a model's answers."""

    fast: Any
    class_names: Sequence[str]
    max_length: int

    @cached_property
    def tokenizer(self) -> str:
        return str(sorted(self.fast.get_vocab().items()))

    def encode(self, text: str) -> list[int]:
        return self.fast(text)["input_ids"] if text.strip() else []

    def words(self, ids: list[int]) -> list[str]:
        return [self.fast.decode([one]).strip() or "␣" for one in ids]

    def spans(self, text: str) -> list[str]:
        return self.words(self.encode(text))


def open_reader(name: str) -> tuple[Reader, TokenizerCodec, Path]:
    """Open a model folder (or a name on the hub) with its tokenizer."""
    try:
        # explicitly: otherwise a folder with code of its own is offered to be run
        config = AutoConfig.from_pretrained(name, trust_remote_code=False)
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"hf:{name} cannot be opened: {first_line(error)}; give a folder that model.save_pretrained and "
            "tokenizer.save_pretrained wrote"
        ) from error
    kind = getattr(transformers, (config.architectures or [""])[0], None)
    if not (isinstance(kind, type) and issubclass(kind, PreTrainedModel)):
        kind = AutoModel
    model = kind.from_pretrained(name, trust_remote_code=False).eval()
    try:
        refuse_unsupported(model)
    except ValueError as error:
        raise UsageError(f"hf:{name}: {error}") from error
    if model.config._attn_implementation != NAME:
        for host in interface_layers(model).values():
            put_site(host, DotProduct())
        model.set_attn_implementation(NAME)
    names = _class_names(model, tokenizer)
    longest = min(getattr(config, "max_position_embeddings", None) or 512, tokenizer.model_max_length)
    return Reader(model), TokenizerCodec(tokenizer, names, longest), Path(name)


def _class_names(model: PreTrainedModel, tokenizer: Any) -> Sequence[str]:
    with torch.no_grad():
        answers = Reader(model)(torch.ones(1, 2, dtype=torch.long), torch.tensor([2])).size(-1)
    labels = {int(number): str(name) for number, name in (model.config.id2label or {}).items()}
    if "Classification" in type(model).__name__ and len(labels) == answers:
        return [labels[number] for number in range(answers)]
    if answers == 1:
        return NO_CLASSES
    return [repr(tokenizer.decode([number])) for number in range(answers)]
