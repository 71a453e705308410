"""FractionalMultiheadAttention: weights, masks and shapes of nn.MultiheadAttention, also inside PyTorch's layers."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from fna_lightning.attention import DotProduct, Fractional, FractionalMultiheadAttention

DIM, HEADS, BATCH, N, M = 12, 3, 2, 5, 7


def tokens(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def pair(**options: Any) -> tuple[nn.MultiheadAttention, FractionalMultiheadAttention]:
    """Return PyTorch's layer, and ours with the same weights and dot-product attention."""
    torch.manual_seed(0)
    pytorch = nn.MultiheadAttention(DIM, HEADS, dtype=torch.float64, **options).eval()
    ours = FractionalMultiheadAttention(DIM, HEADS, dtype=torch.float64, **options).eval()
    ours.load_state_dict(pytorch.state_dict())
    ours.core.attention = DotProduct()
    return pytorch, ours


CALLS: list[dict[str, Any]] = [
    {},
    {"average_attn_weights": False},
    {"need_weights": False},
    {"key_padding_mask": torch.arange(M) >= torch.tensor([7, 4])[:, None]},
    {"attn_mask": ~torch.ones(N, M, dtype=torch.bool).tril()},
    {"attn_mask": tokens(N, M, seed=4)},
    {"attn_mask": torch.zeros(N, M).double().masked_fill(torch.ones(N, M).triu(1) > 0, -torch.inf)},
    {"attn_mask": tokens(BATCH * HEADS, N, M, seed=5) > 1.0},
    {"key_padding_mask": torch.arange(M) >= torch.tensor([7, 4])[:, None], "attn_mask": tokens(N, M, seed=4) > 1.5},
    {"key_padding_mask": torch.arange(M).double() * torch.tensor([[0.1], [-0.2]]).double()},
    {"attn_mask": ~torch.ones(N, M, dtype=torch.bool).tril(), "is_causal": True},
]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: "+".join(call) or "plain")
@pytest.mark.parametrize(
    "options",
    [
        {"batch_first": True},
        {},
        {"bias": False, "batch_first": True},
        {"kdim": 4, "vdim": 6, "batch_first": True},
        {"add_bias_kv": True, "batch_first": True},
        {"add_zero_attn": True, "batch_first": True},
        {"add_bias_kv": True, "add_zero_attn": True, "kdim": 4},
    ],
    ids=str,
)
def test_with_dot_products_it_equals_pytorch(options: dict[str, Any], call: dict[str, Any]) -> None:
    """Only the attention differs from PyTorch's layer: projections, masks and shapes are the same."""
    pytorch, ours = pair(**options)
    q, k, v = (
        tokens(BATCH, N, DIM),
        tokens(BATCH, M, options.get("kdim", DIM)),
        tokens(BATCH, M, options.get("vdim", DIM)),
    )
    if not options.get("batch_first"):
        q, k, v = (x.transpose(0, 1) for x in (q, k, v))
    want, got = pytorch(q, k, v, **call), ours(q, k, v, **call)
    assert_close(got[0], want[0])
    assert (got[1] is None) == (want[1] is None)
    if want[1] is not None:
        assert_close(got[1], want[1])


@pytest.mark.parametrize("need_weights", [True, False])
def test_the_causal_hint_replaces_the_mask_as_in_pytorch(need_weights: bool) -> None:
    """Without weights and padding PyTorch does not read the mask."""
    pytorch, ours = pair(batch_first=True)
    q, k = tokens(BATCH, N, DIM), tokens(BATCH, M, DIM, seed=1)
    call: dict[str, Any] = {"attn_mask": tokens(N, M) > 0.3, "is_causal": True, "need_weights": need_weights}
    assert_close(ours(q, k, k, **call)[0], pytorch(q, k, k, **call)[0])


@pytest.mark.parametrize("average", [True, False])
def test_weights_are_returned_with_the_dropout_of_the_call(average: bool) -> None:
    """The random numbers are drawn as in PyTorch's layer, so the same weights are dropped."""
    pytorch, ours = (layer.train() for layer in pair(dropout=0.5, batch_first=True))
    q, k = tokens(BATCH, N, DIM), tokens(BATCH, M, DIM, seed=1)
    results = []
    for layer in (ours, pytorch):
        torch.manual_seed(1)
        results.append(layer(q, k, k, average_attn_weights=average))
    assert (results[1][1] == 0).any() or average
    for got, want in zip(*results, strict=True):
        assert_close(got, want)
    with pytest.raises(AssertionError):
        assert_close(ours(q, k, k)[1], ours.eval()(q, k, k)[1])


def test_dropout_with_weights_updates_the_intrinsic_dimension() -> None:
    layer = FractionalMultiheadAttention(DIM, HEADS, 0.5, batch_first=True, intrinsic_dim="auto").train()
    before = layer.core.learned_values()["intrinsic_dim"].clone()
    x = tokens(4, 40, DIM).float()
    layer(x, x, x)
    assert not torch.equal(layer.core.learned_values()["intrinsic_dim"], before)


@pytest.mark.parametrize("training", [True, False])
def test_compiled_without_a_graph_break(training: bool) -> None:
    layer = FractionalMultiheadAttention(DIM, HEADS, batch_first=True, add_bias_kv=True).train(training)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    x, padding = tokens(BATCH, N, DIM).float(), torch.arange(N) >= torch.tensor([5, 2])[:, None]
    for got, want in zip(compiled(x, x, x, padding), layer(x, x, x, padding), strict=True):
        assert_close(got, want)


def test_state_dicts_are_exchanged_with_pytorch_strictly() -> None:
    for options in ({}, {"add_bias_kv": True}, {"kdim": 4, "bias": False}):
        pytorch, ours = (
            nn.MultiheadAttention(DIM, HEADS, **options),
            FractionalMultiheadAttention(DIM, HEADS, **options),
        )
        ours.load_state_dict(pytorch.state_dict(), strict=True)
        pytorch.load_state_dict(ours.state_dict(), strict=True)
        assert list(ours.state_dict()) == list(pytorch.state_dict())


def test_parameters_are_reset_and_created_as_in_pytorch() -> None:
    pytorch, ours = nn.MultiheadAttention(DIM, HEADS), FractionalMultiheadAttention(DIM, HEADS, learn=["kappa"])
    for layer in (pytorch, ours):
        torch.manual_seed(0)
        layer._reset_parameters()
    assert_close(ours.in_proj_weight, pytorch.in_proj_weight)
    layer = FractionalMultiheadAttention(DIM, HEADS, device="meta", dtype=torch.float64, learn=["alpha", "kappa"])
    assert {(parameter.device.type, parameter.dtype) for parameter in layer.parameters()} == {("meta", torch.float64)}


def test_one_sequence_without_a_batch() -> None:
    pytorch, ours = pair()
    x = tokens(N, DIM)
    padding = torch.tensor([False] * 4 + [True])
    for a, b in zip(ours(x, x, x, padding), pytorch(x, x, x, padding), strict=True):
        assert_close(a, b)


def test_it_is_fractional_attention_of_the_projected_heads() -> None:
    torch.manual_seed(0)
    layer = FractionalMultiheadAttention(DIM, HEADS, batch_first=True, alpha=1.5, kappa=0.7).double()
    x, padding = tokens(BATCH, N, DIM), torch.arange(N) >= torch.tensor([5, 2])[:, None]
    q, k, v = (x @ layer.in_proj_weight.mT).chunk(3, dim=-1)
    q, k, v = (x.unflatten(-1, (HEADS, -1)).transpose(1, 2) for x in (q, k, v))
    out = Fractional(1.5, 0.7)(q, k, v, ~padding[:, None, None, :]).transpose(1, 2).flatten(2)
    assert_close(layer(x, x, x, key_padding_mask=padding)[0], layer.out_proj(out))


def encoder(alpha: float) -> nn.TransformerEncoder:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(DIM, HEADS, 16, dropout=0.0, batch_first=True)
    layer.self_attn = FractionalMultiheadAttention(DIM, HEADS, batch_first=True, alpha=alpha, kappa=0.5)
    return nn.TransformerEncoder(layer, 2)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_pytorch_encoder_calls_it_in_training_and_in_evaluation() -> None:
    """In evaluation, the fast path of PyTorch's encoder would compute dot-product attention instead."""
    x, padding = tokens(BATCH, N, DIM).float(), torch.arange(N) >= torch.tensor([5, 2])[:, None]
    model = encoder(1.2)
    trained = model(x, src_key_padding_mask=padding)
    with torch.inference_mode():
        evaluated = model.eval()(x, src_key_padding_mask=padding)
        other = encoder(1.9).eval()(x, src_key_padding_mask=padding)
    real = ~padding
    assert_close(evaluated[real], trained[real])
    assert not torch.allclose(other[real], evaluated[real], atol=1e-4)
    weights = model.layers[0].self_attn(x, x, x, padding)[1]
    assert weights[1, :, 2:].eq(0).all()


def exchanged(model: nn.Module, **options: Any) -> nn.Module:
    """Replace every ``nn.MultiheadAttention`` in a model that is already built, and keep its weights."""
    for parent in list(model.modules()):
        for name, layer in list(parent.named_children()):
            if type(layer) is nn.MultiheadAttention:
                ours = FractionalMultiheadAttention(
                    layer.embed_dim, layer.num_heads, layer.dropout, batch_first=layer.batch_first, **options
                )
                ours.load_state_dict(layer.state_dict())
                setattr(parent, name, ours)
    return model


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage")
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_exchange_in_an_encoder_that_is_already_built(mode: Any, activation: str) -> None:
    """In inference with padding, such an encoder passes nested tensors to its layers."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True, activation=activation)
    model = exchanged(nn.TransformerEncoder(layer, 2))
    assert model.use_nested_tensor
    x, padding = tokens(3, 6, 16).float(), torch.arange(6) >= torch.tensor([6, 3, 1])[:, None]
    trained = model(x, src_key_padding_mask=padding)
    causal = torch.ones(6, 6, dtype=torch.bool).triu(1)
    causal_trained = model(x, causal, padding)
    with mode():
        evaluated, causal_evaluated = model.eval()(x, src_key_padding_mask=padding), model(x, causal, padding)
        mixed = exchanged(nn.TransformerEncoder(layer, 2))
        mixed.layers[1] = layer  # PyTorch's own layer, which takes the fast path
        mixed.eval()(x, src_key_padding_mask=padding)
    assert_close(evaluated[~padding], trained[~padding])
    assert_close(causal_evaluated[~padding], causal_trained[~padding])


def test_exchange_in_a_transformer_that_is_already_built() -> None:
    torch.manual_seed(0)
    model = exchanged(nn.Transformer(16, 4, 1, 1, 32, dropout=0.0, batch_first=True))
    source, target = tokens(2, 6, 16).float(), tokens(2, 5, 16, seed=1).float()
    call: dict[str, Any] = {
        "tgt_mask": nn.Transformer.generate_square_subsequent_mask(5),
        "memory_key_padding_mask": torch.arange(6) >= torch.tensor([6, 3])[:, None],
    }
    trained = model(source, target, **call)
    with torch.inference_mode():
        assert_close(model.eval()(source, target, **call), trained)
        assert_close(model(source, target, **call, tgt_is_causal=True), trained)
    assert all(type(layer.self_attn) is FractionalMultiheadAttention for layer in model.decoder.layers)


def test_padding_has_no_influence_and_a_row_without_keys_is_0() -> None:
    layer = FractionalMultiheadAttention(DIM, HEADS, bias=False, batch_first=True).double()
    x = tokens(1, N, DIM)
    longer = torch.cat([x, 100 * tokens(1, 2, DIM, seed=3)], dim=1)
    padded = layer(longer, longer, longer, key_padding_mask=torch.arange(N + 2)[None] >= N)[0]
    assert_close(padded[:, :N], layer(x, x, x)[0])
    nothing = layer(x, x, x, key_padding_mask=torch.ones(1, N, dtype=torch.bool))[0]
    assert nothing.eq(0).all()


def test_alpha_and_kappa_can_be_learned() -> None:
    layer = FractionalMultiheadAttention(DIM, HEADS, batch_first=True, learn=["alpha", "kappa"]).double()
    x = tokens(BATCH, N, DIM)
    layer(x, x, x, need_weights=False)[0].square().sum().backward()
    assert layer.core.attention.learned.log_scale.grad.abs().min() > 0
    assert layer.core.learned_values()["alpha"].shape == (HEADS,)


def test_invalid_arguments_raise() -> None:
    with pytest.raises(AssertionError, match=r"embed_dim \(10\) must be a multiple of num_heads \(3\)"):
        FractionalMultiheadAttention(10, 3)
    layer = FractionalMultiheadAttention(DIM, HEADS)
    x = tokens(N, BATCH, DIM).float()
    with pytest.raises(RuntimeError, match=r"is_causal is a hint about attn_mask.*generate_square_subsequent_mask"):
        layer(x, x, x, is_causal=True)
    with pytest.raises(RuntimeError, match=r"with 2 \* 3, got \(4, 5, 5\)"):
        layer(x, x, x, attn_mask=torch.zeros(4, N, N, dtype=torch.bool))
