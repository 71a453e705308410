"""Beam search by ``generate`` of transformers, with a Marian model that has the weights of one of our networks."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fna_lightning.attention import DotProduct
from fna_lightning.nn import EncoderConfig, Seq2Seq, Seq2SeqConfig
from fna_lightning.nn.decoder import DecoderState
from fna_lightning.search import TokenScores, beam_search

PAD, BEGIN, END = 0, 1, 2
EXCLUDED_TOKENS = (PAD, BEGIN, END)


@dataclass(frozen=True)
class Work:
    """The sentences of the comparison and the sizes of the model.

    Every translation has exactly ``target_tokens`` tokens, so both searches do the same work.
    """

    sentences: int = 96
    source_tokens: int = 16
    target_tokens: int = 16
    beam: int = 5
    vocab_size: int = 6000
    dim: int = 128
    depth: int = 4
    num_heads: int = 4
    ffn_dim: int = 512

    def network(self) -> Seq2Seq:
        """Return a network with random weights, dot-product attention and the layers of Marian (post-LN)."""
        encoder = EncoderConfig(
            dim=self.dim, depth=self.depth, num_heads=self.num_heads, ffn_dim=self.ffn_dim, dropout=0.0
        )
        return Seq2SeqConfig(encoder)(self.vocab_size, self.vocab_size, DotProduct()).eval()

    def sources(self) -> Tensor:
        """Return the (S, M) token ids of random sentences."""
        return torch.randint(len(EXCLUDED_TOKENS), self.vocab_size, (self.sentences, self.source_tokens))


def search(network: Seq2Seq, sources: Tensor, work: Work) -> list[list[int]]:
    """Return the translations by our beam search."""

    def score_next(prefixes: Tensor, state: DecoderState) -> tuple[TokenScores, DecoderState]:
        if prefixes.size(1) > work.target_tokens:
            # The translation is complete: it ends with certainty, without a step of the network.
            ends = torch.full((len(prefixes), work.vocab_size), -math.inf)
            ends[:, END] = 0.0
            return TokenScores(ends, normalized=True), state
        scores, state = network.step(prefixes, state)
        token_scores = TokenScores(scores)
        token_scores.exclude(EXCLUDED_TOKENS)
        return token_scores, state

    lengths = torch.full((len(sources),), sources.size(1))
    hypotheses = beam_search(
        score_next,
        network.begin(sources, lengths),
        max_lengths=[work.target_tokens + 1] * len(sources),
        begin=BEGIN,
        end=END,
        beam=work.beam,
    )
    return [best[0].tokens for best in hypotheses]


def generate(marian: Any, sources: Tensor, work: Work) -> list[list[int]]:
    """Return the translations by transformers."""
    out = marian.generate(
        sources,
        attention_mask=torch.ones_like(sources),
        num_beams=work.beam,
        do_sample=False,
        length_penalty=1.0,
        min_new_tokens=work.target_tokens,
        max_new_tokens=work.target_tokens,
        suppress_tokens=list(EXCLUDED_TOKENS),
    )
    return [row[1:] for row in out.tolist()]


def marian_of(network: Seq2Seq, work: Work) -> Any:
    """Return a Marian model with the weights of the network; its biases of queries, keys and values are 0."""
    from transformers import MarianConfig, MarianMTModel

    settings: dict[str, Any] = {
        "vocab_size": work.vocab_size,
        "d_model": work.dim,
        "encoder_layers": work.depth,
        "decoder_layers": work.depth,
        "encoder_attention_heads": work.num_heads,
        "decoder_attention_heads": work.num_heads,
        "encoder_ffn_dim": work.ffn_dim,
        "decoder_ffn_dim": work.ffn_dim,
        "activation_function": "relu",
        "scale_embedding": True,
        "max_position_embeddings": network.max_length,
        "pad_token_id": PAD,
        "bos_token_id": BEGIN,
        "eos_token_id": END,
        "decoder_start_token_id": BEGIN,
        "forced_eos_token_id": None,
        "attn_implementation": "sdpa",
    }
    marian = MarianMTModel(MarianConfig(**settings)).eval()
    target, table = marian.model, network.target.positions.table
    with torch.no_grad():
        target.shared.weight.copy_(network.score_weight)
        for coder in (target.encoder, target.decoder):
            coder.embed_positions.weight.copy_(table)
        for ours, theirs in zip(network.encoder.layers, target.encoder.layers, strict=True):
            _copy_layer(ours, theirs)
        decoder_layers: Any = network.decoder.layers
        for ours, theirs in zip(decoder_layers, target.decoder.layers, strict=True):
            _copy_layer(ours, theirs)
            _copy_attention(ours.cross_attn, theirs.encoder_attn)
            theirs.encoder_attn_layer_norm.load_state_dict(ours.cross_attn_norm.state_dict())
    return marian


def further_parameters(network: Seq2Seq, work: Work) -> int:
    """Return how many parameters Marian has more than ours.

    They are the biases of queries, keys and values, and two tables of sinusoidal positions.
    """
    return 3 * work.dim * 3 * work.depth + 2 * network.max_length * work.dim


def _copy_layer(ours: Any, theirs: Any) -> None:
    _copy_attention(ours.self_attn, theirs.self_attn)
    theirs.self_attn_layer_norm.load_state_dict(ours.self_attn_norm.state_dict())
    theirs.fc1.load_state_dict(ours.feed_forward[0].state_dict())
    theirs.fc2.load_state_dict(ours.feed_forward[3].state_dict())
    theirs.final_layer_norm.load_state_dict(ours.feed_forward_norm.state_dict())


def _copy_attention(ours: Any, theirs: Any) -> None:
    parts: tuple[tuple[nn.Linear, nn.Linear], ...] = (
        (theirs.q_proj, ours.projection.query),
        (theirs.k_proj, ours.projection.key),
        (theirs.v_proj, ours.value),
    )
    for linear, source in parts:
        linear.weight.copy_(source.weight)
        linear.bias.zero_()
    theirs.out_proj.load_state_dict(ours.out.state_dict())
