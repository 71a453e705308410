"""Small transformers models with random weights, their inputs, and an independent implementation of FNA."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import transformers as tf
from torch import Tensor, nn
from transformers.masking_utils import AttentionMaskInterface, eager_mask

VOCABULARY = 60


@dataclass(frozen=True)
class Tiny:
    """A model family: its constructor and the inputs it takes."""

    make: Callable[[], tf.PreTrainedModel]
    decoder: bool = False
    positions: bool = True
    images: bool = False


SIZES = {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}


def _bert() -> tf.PreTrainedModel:
    options = {"intermediate_size": 48, "max_position_embeddings": 64, "num_labels": 3}
    return tf.BertForSequenceClassification(tf.BertConfig(**SIZES, **options))


def _gpt2() -> tf.PreTrainedModel:
    options = {"max_position_embeddings": 64, "bos_token_id": 1, "eos_token_id": 2}
    return tf.GPT2LMHeadModel(tf.GPT2Config(**SIZES, **options))


def _llama() -> tf.PreTrainedModel:
    options = {"intermediate_size": 48, "num_key_value_heads": 2, "pad_token_id": 0}
    return tf.LlamaForCausalLM(tf.LlamaConfig(**SIZES, **options))


def _t5() -> tf.PreTrainedModel:
    sizes = {"vocab_size": VOCABULARY, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}
    return tf.T5ForConditionalGeneration(tf.T5Config(**sizes, decoder_start_token_id=0))


def _marian() -> tf.PreTrainedModel:
    sizes = {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
    sizes |= {"encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "max_position_embeddings": 64, "d_model": 32}
    tokens = {"pad_token_id": 0, "decoder_start_token_id": 0, "eos_token_id": 2, "forced_eos_token_id": None}
    return tf.MarianMTModel(tf.MarianConfig(vocab_size=VOCABULARY, decoder_vocab_size=VOCABULARY, **sizes, **tokens))


def _vit() -> tf.PreTrainedModel:
    sizes = {name: size for name, size in SIZES.items() if name != "vocab_size"}
    options = {"intermediate_size": 48, "image_size": 16, "patch_size": 4, "num_labels": 3}
    return tf.ViTForImageClassification(tf.ViTConfig(**sizes, **options))


MODELS = {
    "bert": Tiny(_bert),
    "gpt2": Tiny(_gpt2),
    "llama": Tiny(_llama),
    "t5": Tiny(_t5, decoder=True, positions=False),
    "marian": Tiny(_marian, decoder=True, positions=False),
    "vit": Tiny(_vit, images=True),
}


def tiny(name: str, std: float = 0.25) -> tf.PreTrainedModel:
    """Return the model in evaluation mode; its weights are large so that attention is far from uniform."""
    torch.manual_seed(0)
    model = MODELS[name].make().eval()
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            # Marian recomputes its position embeddings and does not save them.
            if parameter.dim() == 2 and "embed_positions" not in parameter_name:
                parameter.normal_(std=std)
    return model


def inputs(name: str, lengths: tuple[int, ...] = (9, 5), side: str = "right") -> dict[str, Tensor]:
    """Return a padded batch with the same tokens for either padding side; the padding is random tokens."""
    generator = torch.Generator().manual_seed(1)
    family = MODELS[name]
    if family.images:
        return {"pixel_values": torch.randn(len(lengths), 3, 16, 16, generator=generator)}
    max_length = max(lengths)
    rows = [torch.randint(3, VOCABULARY, (length,), generator=generator) for length in lengths]
    ids = torch.randint(3, VOCABULARY, (len(rows), max_length), generator=generator)
    mask = torch.zeros(len(rows), max_length, dtype=torch.long)
    for row, tokens in enumerate(rows):
        span = slice(0, len(tokens)) if side == "right" else slice(max_length - len(tokens), max_length)
        ids[row, span], mask[row, span] = tokens, 1
    batch = {"input_ids": ids, "attention_mask": mask}
    if family.decoder:
        batch["decoder_input_ids"] = torch.randint(
            3, VOCABULARY, (len(rows), 4), generator=torch.Generator().manual_seed(2)
        )
    elif family.positions:
        batch["position_ids"] = (mask.cumsum(-1) - 1).clamp(min=0)
    return batch


def outputs(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """Return the logits of every token, or its last hidden state for a classifier; 0 for padding."""
    with torch.no_grad():
        output = model(**batch, output_hidden_states=True)
    mask = batch.get("attention_mask")
    result = output.logits if output.logits.dim() == 3 or mask is None else output.hidden_states[-1]
    return result * mask[..., None] if mask is not None and mask.shape == result.shape[:2] else result


def register_reference(alpha: float, kappa: float) -> None:
    """Register FNA as "reference": its formula in float64, with transformers' additive masks."""

    def reference(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **kwargs: Any
    ) -> tuple[Tensor, None]:
        bias = kwargs.get("position_bias")
        heads = []
        for head in range(query.size(1)):
            group = head * key.size(1) // query.size(1)
            q, k, v = query[:, head].double(), key[:, group].double(), value[:, group].double()
            distance = (q[:, :, None] - k[:, None]).square().sum(-1).sqrt()
            if alpha == 2.0:
                kernel = torch.exp(-((distance / kappa) ** 2))
            else:
                kernel = (1 + distance / kappa) ** -(q.size(-1) + alpha)
            if bias is not None:
                kernel = kernel * bias[:, head].double().exp()
            if attention_mask is not None:
                kernel = kernel * (attention_mask[:, 0] == 0)
            # A query without any allowed key, such as left padding, gets 0.
            heads.append(kernel / kernel.sum(-1, keepdim=True).clamp(min=1e-300) @ v)
        return torch.stack(heads, dim=2).to(query.dtype), None

    tf.AttentionInterface.register("reference", reference)
    AttentionMaskInterface.register("reference", eager_mask)
