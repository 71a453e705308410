"""Models create all tensors on their own device: on the meta device, a CPU tensor inside a model is an error."""

from typing import Any

import pytest
import torch
from torch import Tensor

from fna_lightning.attention import (
    Attention,
    DotProduct,
    Fractional,
    LinearProjection,
    MultiheadAttention,
    OrthogonalProjection,
    Spherical,
)
from fna_lightning.nn import EncoderConfig, Seq2SeqConfig, ViTConfig
from fna_lightning.tasks import ImageClassification, TextClassification
from fna_lightning.tasks.image.data import ImageBatch
from fna_lightning.tasks.text.data import TextBatch

from helpers.attention_cases import ATTENTIONS

META = torch.device("meta")
MASKS = {"none": None, "padding": (2, 1, 1, 5), "any": (2, 4, 5, 5)}


def backward(result: Tensor, *inputs: Tensor) -> None:
    """Backpropagate; every gradient must be on the meta device."""
    assert result.device == META
    result.sum().backward()
    for tensor in inputs:
        assert tensor.grad is not None
        assert tensor.grad.device == META


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("attention", ATTENTIONS, ids=repr)
def test_every_attention(attention: Attention, mask: tuple[int, ...] | None, is_causal: bool) -> None:
    q, k, v = (torch.randn(2, 4, 5, 8, device=META, requires_grad=True) for _ in range(3))
    attn_mask = None if mask is None else torch.ones(mask, dtype=torch.bool, device=META)
    backward(attention.weights(q, k, attn_mask, is_causal=is_causal), q)
    q.grad = None
    backward(attention(q, k, v, attn_mask, is_causal=is_causal), v)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("projection", [LinearProjection, OrthogonalProjection])
@pytest.mark.parametrize("heads", [1, 4])
def test_every_projection(projection: Any, tied: bool, heads: int) -> None:
    # created on the CPU, because torch's orthogonal parametrization reads the initial values
    layer = MultiheadAttention(16, heads, Fractional(), lambda dim, number: projection(dim, number, tied=tied)).to(META)
    x = torch.randn(2, 5, 16, device=META, requires_grad=True)
    context = torch.randn(2, 7, 16, device=META)
    backward(layer(x, context), x)


def text() -> tuple[Any, Any]:
    task = TextClassification(50, 3, Spherical(), EncoderConfig(dim=16, num_heads=4, ffn_dim=16, depth=2))
    tokens = torch.randint(0, 50, (4, 9), device=META)
    return task, TextBatch(
        tokens, torch.ones(4, dtype=torch.long, device=META), torch.zeros(4, dtype=torch.long, device=META)
    )


def images() -> tuple[Any, Any]:
    encoder = EncoderConfig(dim=16, num_heads=4, ffn_dim=16, pre_norm=True)
    task = ImageClassification(3, 1, 8, Fractional(), ViTConfig(encoder))
    pixels = torch.zeros(4, 1, 8, 8, dtype=torch.uint8, device=META)
    return task, ImageBatch(pixels, torch.zeros(4, dtype=torch.long, device=META))


@pytest.mark.parametrize("build", [text, images])
def test_every_task(build: Any) -> None:
    with META:
        task, batch = build()
    loss = task.loss(batch, "train")
    assert loss.device == META
    loss.backward()
    for name, parameter in task.named_parameters():
        assert parameter.grad is None or parameter.grad.device == META, name


@pytest.mark.parametrize("attention", [Fractional(), Fractional(2.0), Spherical(), DotProduct()], ids=repr)
def test_the_translator(attention: Attention) -> None:
    # the loss selects tokens by value, and meta tensors have no values, so only the network is tested
    with META:
        encoder = EncoderConfig(dim=16, num_heads=4, ffn_dim=16)
        network = Seq2SeqConfig(encoder, max_length=16)(40, 40, attention)
        source, target = torch.randint(0, 40, (4, 9)), torch.randint(0, 40, (4, 7))
        scores = network(source, torch.ones(4, dtype=torch.long), target)
    backward(scores, *network.parameters())


def test_a_cpu_tensor_inside_is_an_error() -> None:
    class WrongDevice(DotProduct):
        def log_kernel(self, q: Tensor, k: Tensor) -> Tensor:
            return super().log_kernel(q, k) * torch.arange(k.size(-2), device="cpu")

    q = torch.randn(1, 1, 5, 8, device=META)
    with pytest.raises(RuntimeError, match="device"):
        WrongDevice().weights(q, q)
