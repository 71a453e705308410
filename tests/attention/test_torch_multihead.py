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
]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: "+".join(call) or "plain")
@pytest.mark.parametrize(
    "options",
    [{"batch_first": True}, {}, {"bias": False, "batch_first": True}, {"kdim": 4, "vdim": 6, "batch_first": True}],
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
