"""Neural processes: predictions depend on the context as a set, and not on the other queries."""

import pytest
import torch
from torch.testing import assert_close

from fna_lightning.attention import DotProduct, Fractional, Uniform
from fna_lightning.introspection.maps import attention_maps
from fna_lightning.nn import AttentiveProcess, NeuralProcess, TransformerProcess
from fna_lightning.nn.neural_process import KeyValueAttention

NETWORKS = {"attentive": AttentiveProcess, "transformer": TransformerProcess}
ATTENTIONS = {"fna": Fractional(1.2, 0.1, 2, learn=["kappa"]), "dot-product": DotProduct(), "uniform": Uniform()}


def network(name: str, attention: str = "fna") -> NeuralProcess:
    torch.manual_seed(0)
    return NETWORKS[name](ATTENTIONS[attention], 2, 3, 4)  # type: ignore[abstract]


def points() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(2, size, dim, generator=generator) for size, dim in ((7, 2), (7, 3), (5, 2)))  # type: ignore[return-value]


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("name", NETWORKS)
def test_the_order_of_the_context_does_not_matter(name: str, attention: str) -> None:
    process, (x, y, query) = network(name, attention), points()
    order = torch.randperm(7)
    assert_close(process(x[:, order], y[:, order], query), process(x, y, query), atol=1e-5, rtol=1e-4)
    assert process(x, y, query).shape == (2, 5, 4)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_query_does_not_see_the_others(name: str) -> None:
    process, (x, y, query) = network(name), points()
    assert_close(process(x, y, query[:, 2:3]), process(x, y, query)[:, 2:3], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", NETWORKS)
def test_padding_has_no_effect(name: str) -> None:
    process, (x, y, query) = network(name), points()
    padded_x, padded_y = torch.cat([x, 9.0 + x], 1), torch.cat([y, 9.0 + y], 1)
    mask = (torch.arange(14) < 7).expand(2, 1, 1, 14)
    assert_close(process(padded_x, padded_y, query, mask), process(x, y, query), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", NETWORKS)
def test_every_parameter_gets_a_gradient(name: str) -> None:
    process, (x, y, query) = network(name), points()
    process(x, y, query).square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in process.parameters())


def test_the_attentive_process_predicts_through_the_attention_alone() -> None:
    """Uniform attention does not see the query, and there is no other way from the query to the output."""
    process, (x, y, query) = network("attentive", "uniform"), points()
    output = process(x, y, query)
    assert_close(output, output[:, :1].expand_as(output))


def test_the_number_of_parameters_of_the_prototype() -> None:
    process = AttentiveProcess(Uniform(), 2, 1, 1)
    assert sum(parameter.numel() for parameter in process.parameters()) == 8641


@pytest.mark.parametrize("name", NETWORKS)
def test_weights_of_the_context_can_be_recorded(name: str) -> None:
    process, (x, y, query) = network(name), points()
    maps = attention_maps(process, lambda: {"": torch.tensor([len(process(x, y, query)[0])] * 2)})
    rows = 5 if name == "attentive" else 12
    for layer_map in maps.values():
        assert layer_map.weights.shape == (2, 4, rows, 7)
        assert not layer_map.is_self


def test_bad_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="value_dim must be at least 1, got 0"):
        AttentiveProcess(Uniform(), 2, 0, 1)
    with pytest.raises(ValueError, match="depth must be at least 1, got 0"):
        TransformerProcess(Uniform(), 2, 1, 1, depth=0)
    with pytest.raises(ValueError, match="KeyValueAttention needs a context of keys and values"):
        KeyValueAttention(8, 2, Uniform())(torch.zeros(1, 3, 8))
