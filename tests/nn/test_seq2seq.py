"""Sequence-to-sequence Transformer: padding, causality, caches, tied embeddings."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from fna_lightning.attention import Attention, DotProduct, Fractional, OrthogonalProjection, Uniform
from fna_lightning.nn import Decoder, DecoderConfig, EncoderConfig, Seq2Seq, Seq2SeqConfig

from helpers.attention_cases import ATTENTIONS

EVERY = pytest.mark.parametrize("attention", ATTENTIONS, ids=repr)
NORMS = pytest.mark.parametrize("pre_norm", [False, True], ids=["post", "pre"])


def network(attention: Attention, *, pre_norm: bool = False, tied: str = "all") -> Seq2Seq:
    torch.manual_seed(0)
    # A decoder cannot use an attention that depends on the density of all tokens.
    causal = Fractional(1.2) if attention.density_power else attention
    encoder = EncoderConfig(dim=16, depth=2, num_heads=2, ffn_dim=24, pre_norm=pre_norm)
    config = Seq2SeqConfig(encoder, DecoderConfig(causal, causal), tied=tied, max_length=32)
    return config(20, 20, attention).double().eval()


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
def test_padding_of_source_and_target_does_not_change_the_scores(attention: Attention, pre_norm: bool) -> None:
    model, batch = network(attention, pre_norm=pre_norm), pair()
    want = model(batch.source, batch.lengths, batch.target)
    # The content of the padding must not matter either.
    source = torch.cat([batch.source, torch.randint(0, 20, (3, 7))], dim=1)
    source = torch.where((torch.arange(13) >= batch.lengths[:, None]), torch.randint(0, 20, (3, 13)), source)
    target = torch.cat([batch.target, torch.randint(0, 20, (3, 4))], dim=1)
    assert_close(model(source, batch.lengths, target)[:, :5], want, rtol=0, atol=1e-6)
    for row, length in enumerate(batch.lengths):
        alone = model(batch.source[row : row + 1, :length], length[None], batch.target[row : row + 1])
        assert_close(alone[0], want[row], rtol=0, atol=1e-6)


@NORMS
@EVERY
def test_scores_do_not_depend_on_later_tokens(attention: Attention, pre_norm: bool) -> None:
    model, batch = network(attention, pre_norm=pre_norm), pair()
    changed = batch.target.clone()
    changed[:, 3:] = (changed[:, 3:] + 1) % 20
    before, after = model(batch.source, batch.lengths, batch.target), model(batch.source, batch.lengths, changed)
    assert_close(before[:, :3], after[:, :3], rtol=0, atol=1e-9)
    assert not torch.allclose(before[:, 3:], after[:, 3:])


@NORMS
@EVERY
def test_decoding_token_by_token_gives_the_same_scores(attention: Attention, pre_norm: bool) -> None:
    model, batch = network(attention, pre_norm=pre_norm), pair()
    want = model(batch.source, batch.lengths, batch.target).log_softmax(dim=-1)
    state = model.begin(batch.source, batch.lengths)
    for position in range(5):
        got, state = model.step(batch.target[:, : position + 1], state)
        assert len(state) == position + 1
        assert_close(got.log_softmax(dim=-1), want[:, position], rtol=0, atol=1e-5)


def test_hypotheses_of_a_sentence_share_the_keys_of_the_source() -> None:
    model, batch = network(Fractional(1.2, kappa="vision")), pair()
    state = model.begin(batch.source, batch.lengths)
    _, state = model.step(batch.target[:, :1], state)
    # Sentences 2 and 0 continue, with two hypotheses each.
    state = state.select(torch.tensor([[2, 2], [0, 0]]))
    prefixes = torch.stack([batch.target[2, :2], batch.target[1, :2], batch.target[0, :2], batch.target[1, :2]])
    prefixes[:, 0] = batch.target[[2, 2, 0, 0], 0]
    got, state = model.step(prefixes, state)
    rows = torch.tensor([2, 2, 0, 0])
    want = model(batch.source[rows], batch.lengths[rows], prefixes)[:, -1].log_softmax(dim=-1)
    assert_close(got.log_softmax(dim=-1), want, rtol=0, atol=1e-9)
    assert state.memory.size(0) == 2


def test_three_attentions_and_three_projections() -> None:
    encoder_attention, decoder_attention, cross_attention = Fractional(1.2), DotProduct(), Uniform()
    decoder = DecoderConfig(decoder_attention, cross_attention, depth=2, cross_projection=OrthogonalProjection)
    model = Seq2SeqConfig(EncoderConfig(dim=8, num_heads=2, ffn_dim=8), decoder)(9, 9, encoder_attention)
    assert [len(model.encoder.layers), len(model.decoder.layers)] == [1, 2]
    layer = model.decoder.layers[0]
    assert model.encoder.layers[0].self_attn.attention is encoder_attention
    assert layer.self_attn.attention is decoder_attention
    assert layer.cross_attn.attention is cross_attention
    assert isinstance(layer.cross_attn.projection, OrthogonalProjection)
    assert not isinstance(layer.self_attn.projection, OrthogonalProjection)


@pytest.mark.parametrize(("tied", "tables"), [("all", 1), ("target", 2), ("none", 3)])
def test_number_of_token_tables(tied: str, tables: int) -> None:
    model = network(DotProduct(), tied=tied)
    assert len({id(p) for p in model.parameters() if p.shape == (20, 16)}) == tables
    assert (model.score_weight is model.target.tokens.weight) == (tied != "none")


def test_invalid_tying() -> None:
    with pytest.raises(ValueError, match=r"got 20 and 30 token ids; use a joint tokenizer, or tied='target'"):
        Seq2SeqConfig()(20, 30, DotProduct())
    with pytest.raises(ValueError, match="unknown tied 'both'; choose one of all, target, none"):
        Seq2SeqConfig(tied="both")


def test_attentions_that_a_decoder_cannot_use() -> None:
    with pytest.raises(ValueError, match=r"density_power = 0, got 0\.5"):
        Decoder(DotProduct(density_power=0.5), DotProduct())
    with pytest.raises(ValueError, match="cross-attention takes neither exclude_self nor density_power"):
        Decoder(DotProduct(), DotProduct(exclude_self=True))
