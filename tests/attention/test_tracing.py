"""torch.fx.symbolic_trace records attention as one node; torch.jit.script is refused in one sentence."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch.testing import assert_close

from fna_lightning import attention_weights, fractional_attention
from fna_lightning.attention import (
    Attention,
    DotProduct,
    ExternalAttention,
    Fractional,
    FractionalMultiheadAttention,
    MultiheadAttention,
    Spherical,
)

B, H, N, D = 2, 4, 5, 8


class Core(nn.Module):
    """An attention inside a model."""

    def __init__(self, attention: Attention | ExternalAttention) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, q: Tensor) -> Tensor:
        return self.attention(q, q + 1.0, q, is_causal=True) + 1.0


class Layers(nn.Module):
    """Layers with projections inside a model."""

    def __init__(self) -> None:
        super().__init__()
        self.ours = MultiheadAttention(H * D, H, Fractional())
        self.drop_in = FractionalMultiheadAttention(H * D, H, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        x = self.ours(x)
        out, weights = self.drop_in(x, x, x)
        return out + weights.sum() + self.drop_in(x, x, x, need_weights=False)[0]


class Function(nn.Module):
    """The functions inside a model."""

    def forward(self, q: Tensor) -> Tensor:
        return fractional_attention(q, q + 1.0, q, alpha=1.5, is_causal=True) + attention_weights(q, q).sum()


MODELS: dict[str, Callable[[], nn.Module]] = {
    "Fractional": lambda: Core(Fractional()),
    "Spherical": lambda: Core(Spherical()),
    "DotProduct": lambda: Core(DotProduct()),
    "ExternalAttention": lambda: Core(ExternalAttention(Fractional(), H, D)),
    "layers": Layers,
    "functions": Function,
}


@pytest.mark.parametrize("name", MODELS)
def test_a_symbolic_trace_gives_the_same_output(name: str) -> None:
    torch.manual_seed(0)
    model = MODELS[name]()
    traced = fx.symbolic_trace(model)
    for n in (N, N + 3):  # The graph does not contain the length.
        x = torch.randn(B, n, H * D) if name == "layers" else torch.randn(B, H, n, D)
        assert_close(traced(x), model(x))


@pytest.mark.parametrize(
    "layer",
    [
        Fractional(),
        ExternalAttention(Fractional(), H, D),
        MultiheadAttention(H * D, H, Fractional()),
        FractionalMultiheadAttention(H * D, H),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_a_layer_alone_is_not_traced(layer: nn.Module) -> None:
    message = f"symbolic_trace cannot trace {type(layer).__name__} itself.*use torch.export.export or torch.compile"
    with pytest.raises(RuntimeError, match=message):
        fx.symbolic_trace(layer)


def user_function(q: Tensor) -> Tensor:
    return fractional_attention(q, q, q)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("subject", "name"),
    [
        (fractional_attention, "fractional_attention"),
        (attention_weights, "attention_weights"),
        (user_function, "fractional_attention"),
        (Fractional(), "Fractional"),
        (MultiheadAttention(H * D, H, Fractional()), "MultiheadAttention"),
        (ExternalAttention(Fractional(), H, D), "ExternalAttention"),
        (FractionalMultiheadAttention(H * D, H), "FractionalMultiheadAttention"),
        (nn.Sequential(Core(Spherical())), "Spherical"),
    ],
)
def test_torchscript_is_refused_in_one_sentence(subject: Any, name: str) -> None:
    message = f"^torch.jit.script cannot compile {name}; use torch.compile, or torch.export.export to save the model"
    with pytest.raises(RuntimeError, match=message):
        torch.jit.script(subject)
