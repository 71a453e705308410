"""The Transformer from one sequence to another: padding, order, caches, tying."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from fna_lightning.attention import Attention, DotProduct, Fractional, OrthogonalProjection, Uniform
from fna_lightning.nn import Dropout, Seq2Seq, linear_cross_entropy

from helpers.attention_cases import ATTENTIONS

EVERY = pytest.mark.parametrize("attention", ATTENTIONS, ids=repr)
NORMS = pytest.mark.parametrize("pre_norm", [False, True], ids=["post", "pre"])


def network(attention: Attention, **more: object) -> Seq2Seq:
    torch.manual_seed(0)
    # what needs all tokens at once is no attention for a decoder
    decoding = Fractional(1.2) if attention.density_power else attention
    shape = {"dim": 16, "depth": 2, "num_heads": 2, "ffn_dim": 24, "max_length": 32}
    return Seq2Seq(20, 20, attention, decoding, decoding, **shape, **more).double().eval()  # type: ignore[arg-type]


@dataclass
class Pair:
    source: Tensor
    lengths: Tensor
    target: Tensor


def pair(seed: int = 0) -> Pair:
    generator = torch.Generator().manual_seed(seed)
    source = torch.randint(4, 20, (3, 6), generator=generator)
    lengths = torch.tensor([6, 4, 1])
    source[torch.arange(6) >= lengths[:, None]] = 0
    return Pair(source, lengths, torch.randint(2, 20, (3, 5), generator=generator))


@NORMS
@EVERY
def test_padding_of_source_and_target_changes_nothing(attention: Attention, pre_norm: bool) -> None:
    model, it = network(attention, pre_norm=pre_norm), pair()
    want = model(it.source, it.lengths, it.target)
    # what stands in the padding must not matter either
    source = torch.cat([it.source, torch.randint(0, 20, (3, 7))], dim=1)
    source = torch.where((torch.arange(13) >= it.lengths[:, None]), torch.randint(0, 20, (3, 13)), source)
    target = torch.cat([it.target, torch.randint(0, 20, (3, 4))], dim=1)
    assert_close(model(source, it.lengths, target)[:, :5], want, rtol=0, atol=1e-6)
    for row, length in enumerate(it.lengths):
        alone = model(it.source[row : row + 1, :length], length[None], it.target[row : row + 1])
        assert_close(alone[0], want[row], rtol=0, atol=1e-6)


@NORMS
@EVERY
def test_a_token_does_not_see_the_ones_after_it(attention: Attention, pre_norm: bool) -> None:
    model, it = network(attention, pre_norm=pre_norm), pair()
    changed = it.target.clone()
    changed[:, 3:] = (changed[:, 3:] + 1) % 20
    before, after = model(it.source, it.lengths, it.target), model(it.source, it.lengths, changed)
    assert_close(before[:, :3], after[:, :3], rtol=0, atol=1e-9)
    assert not torch.allclose(before[:, 3:], after[:, 3:])


@NORMS
@EVERY
def test_token_by_token_is_the_same_as_at_once(attention: Attention, pre_norm: bool) -> None:
    model, it = network(attention, pre_norm=pre_norm), pair()
    want = model(it.source, it.lengths, it.target).log_softmax(dim=-1)
    state = model.begin(it.source, it.lengths)
    for place in range(5):
        got, state = model.score_next(it.target[:, : place + 1], state)
        assert len(state) == place + 1
        assert_close(got, want[:, place], rtol=0, atol=1e-5)


def test_hypotheses_of_a_sentence_share_its_source() -> None:
    model, it = network(Fractional(1.2, kappa="vision")), pair()
    state = model.begin(it.source, it.lengths)
    _, state = model.score_next(it.target[:, :1], state)
    # sentences 2 and 0 go on, with two hypotheses each
    state = state.select(torch.tensor([[2, 2], [0, 0]]))
    prefixes = torch.stack([it.target[2, :2], it.target[1, :2], it.target[0, :2], it.target[1, :2]])
    prefixes[:, 0] = it.target[[2, 2, 0, 0], 0]
    got, state = model.score_next(prefixes, state)
    rows = torch.tensor([2, 2, 0, 0])
    want = model(it.source[rows], it.lengths[rows], prefixes)[:, -1].log_softmax(dim=-1)
    assert_close(got, want, rtol=0, atol=1e-9)
    assert state.memory.size(0) == 2


def test_three_attentions_and_three_projections() -> None:
    inside, back, across = Fractional(1.2), DotProduct(), Uniform()
    shape = {"dim": 8, "depth": 1, "num_heads": 2, "ffn_dim": 8}
    model = Seq2Seq(9, 9, inside, back, across, cross_projection=OrthogonalProjection, **shape)  # type: ignore[arg-type]
    layer = model.decoder.layers[0]
    assert model.encoder.layers[0].self_attn.attention is inside
    assert layer.self_attn.attention is back
    assert layer.cross_attn.attention is across
    assert isinstance(layer.cross_attn.projection, OrthogonalProjection)
    assert not isinstance(layer.self_attn.projection, OrthogonalProjection)


@pytest.mark.parametrize(("tied", "tables"), [("all", 1), ("target", 2), ("none", 3)])
def test_tables_are_tied_as_told(tied: str, tables: int) -> None:
    model = network(DotProduct(), tied=tied)
    found = {id(p) for p in model.parameters() if p.shape == (20, 16)}
    assert len(found) == tables
    assert (model.score_weight is model.target.tokens.weight) == (tied != "none")


def test_two_vocabularies_cannot_be_tied() -> None:
    one = DotProduct()
    with pytest.raises(ValueError, match=r"got 20 and 30 token ids; use a joint tokenizer, or tied='target'"):
        Seq2Seq(20, 30, one, one, one)
    with pytest.raises(ValueError, match="unknown tied 'both'; choose one of all, target, none"):
        Seq2Seq(20, 20, one, one, one, tied="both")


def test_attentions_that_cannot_decode_are_refused() -> None:
    one = DotProduct()
    with pytest.raises(ValueError, match=r"density_power = 0, got 0\.5"):
        Seq2Seq(9, 9, one, DotProduct(density_power=0.5), one)
    with pytest.raises(ValueError, match="cross-attention takes neither exclude_self nor density_power"):
        Seq2Seq(9, 9, one, one, DotProduct(exclude_self=True))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_cross_entropy_with_its_gradients(smoothing: float) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(600, 8, generator=generator, dtype=torch.float64).requires_grad_()
    w = torch.randn(50, 8, generator=generator, dtype=torch.float64).requires_grad_()
    y = torch.randint(0, 50, (600,), generator=generator)
    got, plain = linear_cross_entropy(x, w, y, smoothing)
    want = torch.nn.functional.cross_entropy(x @ w.mT, y, label_smoothing=smoothing)
    assert_close(got, want)
    assert_close(plain, torch.nn.functional.cross_entropy(x @ w.mT, y))
    for a, b in zip(torch.autograd.grad(3.0 * got, (x, w)), torch.autograd.grad(3.0 * want, (x, w)), strict=True):
        assert_close(a, b)


def test_dropout_drops_its_share_and_keeps_the_mean() -> None:
    torch.manual_seed(0)
    x = torch.ones(1003, 301)
    y = Dropout(0.3).train()(x)
    assert_close((y == 0).double().mean().item(), 0.3, rtol=0, atol=5e-3)
    assert_close(y.double().mean().item(), 1.0, rtol=0, atol=5e-3)
    # no place of a group of eight is kept or dropped more than another
    assert_close(
        (y == 0).double().view(-1)[: 7 * 40_000].view(-1, 7).mean(0), torch.full((7,), 0.3).double(), rtol=0, atol=0.01
    )
    assert Dropout(0.3).eval()(x) is x
