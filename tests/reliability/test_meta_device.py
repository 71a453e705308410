"""Device-correct without a GPU at hand: on the meta device a CPU tensor made inside a model is an error."""

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
    """Differentiate, and see that every gradient stays on the device."""
    assert result.device == META
    result.sum().backward()
    for one in inputs:
        assert one.grad is not None
        assert one.grad.device == META


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("attention", ATTENTIONS, ids=repr)
def test_every_attention(attention: Attention, mask: tuple[int, ...] | None, is_causal: bool) -> None:
    q, k, v = (torch.randn(2, 4, 5, 8, device=META, requires_grad=True) for _ in range(3))
    seen = None if mask is None else torch.ones(mask, dtype=torch.bool, device=META)
    backward(attention.weights(q, k, seen, is_causal=is_causal), q)
    q.grad = None
    backward(attention(q, k, v, seen, is_causal=is_causal), v)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("projection", [LinearProjection, OrthogonalProjection])
@pytest.mark.parametrize("heads", [1, 4])
def test_every_projection(projection: Any, tied: bool, heads: int) -> None:
    # made on the CPU: torch's orthogonal parametrisation looks at the numbers it starts from
    layer = MultiheadAttention(16, heads, Fractional(), lambda dim, number: projection(dim, number, tied=tied)).to(META)
    x = torch.randn(2, 5, 16, device=META, requires_grad=True)
    context = torch.randn(2, 7, 16, device=META)
    backward(layer(x, context), x)


# every task with a batch of its kind; a new task joins by one line
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
    # its loss picks the real tokens by their values, which a tensor here has not: the network is what can be tried
    with META:
        encoder = EncoderConfig(dim=16, num_heads=4, ffn_dim=16)
        network = Seq2SeqConfig(encoder, max_length=16)(40, 40, attention)
        source, target = torch.randint(0, 40, (4, 9)), torch.randint(0, 40, (4, 7))
        scores = network(source, torch.ones(4, dtype=torch.long), target)
    backward(scores, *network.parameters())


def test_a_cpu_tensor_inside_would_be_noticed() -> None:
    class Careless(DotProduct):
        def log_kernel(self, q: Tensor, k: Tensor) -> Tensor:
            return super().log_kernel(q, k) * torch.arange(k.size(-2), device="cpu")

    q = torch.randn(1, 1, 5, 8, device=META)
    with pytest.raises(RuntimeError, match="device"):
        Careless().weights(q, q)
