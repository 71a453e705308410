"""Transformer for sequence-to-sequence tasks such as translation."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from fna_lightning.attention import Attention, LinearProjection, Projection
from fna_lightning.attention.linear import Linear, linear
from fna_lightning.nn.decoder import Decoder, DecoderState
from fna_lightning.nn.embedding import Embedding
from fna_lightning.nn.encoder import Encoder, EncoderConfig
from fna_lightning.nn.token_table import TokenTable

TYINGS = ("all", "target", "none")


class Seq2Seq(nn.Module):
    """Encoder, decoder, embeddings and the scores of the next token. ``Seq2SeqConfig`` builds one.

    Args:
        encoder: the encoder.
        decoder: the decoder.
        source: embedding of the tokens of the source; may be the same module as ``target``.
        target: embedding of the tokens of the target.
        scores: maps the output of the decoder to a score per token; None uses the token vectors of ``target``.
    """

    def __init__(
        self,
        encoder: Encoder,
        decoder: Decoder,
        source: Embedding,
        target: Embedding,
        scores: nn.Linear | None = None,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.target = target
        self.source = source
        self.scores = scores

    @property
    def max_length(self) -> int:
        """Maximum number of tokens of a sequence."""
        return self.target.positions.max_length

    @property
    def score_weight(self) -> Tensor:
        """(V, D) matrix that maps a feature vector to the score of every token."""
        weight = self.target.tokens.weight if self.scores is None else self.scores.weight
        assert isinstance(weight, Tensor)
        return weight

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        """Return the (B, N, V) scores of the token after each of the (B, N) tokens of ``target``."""
        return self.score(self.features(source, lengths, target))

    def features(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        """Return the (B, N, D) output of the decoder, from which tokens are scored.

        Args:
            source: (B, M) token ids, of which the first ``lengths`` are real.
            lengths: (B,).
            target: (B, N) token ids.
        """
        memory, mask = self.encode(source, lengths)
        return self.decoder(self.target(target), memory, mask)

    def score(self, features: Tensor) -> Tensor:
        """Return the score of every token as the next one."""
        return linear(features, self.score_weight)

    def encode(self, source: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Return the (B, M, D) output of the encoder and the (B, 1, 1, M) mask of real tokens."""
        mask = (torch.arange(source.size(1), device=source.device) < lengths[:, None])[:, None, None, :]
        return self.encoder(self.source(source), mask), mask

    def begin(self, source: Tensor, lengths: Tensor) -> DecoderState:
        """Encode the source and return the state of a decoder that has read no token of the target."""
        return DecoderState(*self.encode(source, lengths), len(self.decoder.layers))

    def step(self, prefixes: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Return the (R, V) scores of the token after each of the (R, T) ``prefixes``, and the new state."""
        features = self.decoder.step(self.target(prefixes[:, -1:], start=prefixes.size(1) - 1), state)[:, 0]
        return self.score(features), state


@dataclass(frozen=True)
class DecoderConfig:
    """Settings of a decoder that differ from those of the encoder.

    Args:
        attention: the attention among the tokens of the target; None uses that of the encoder.
        cross_attention: the attention from the target to the source; None uses that of the encoder.
        depth: number of layers; None uses that of the encoder.
        projection: builds the projection to queries and keys of the self-attention.
        cross_projection: builds the projection to queries and keys of the cross-attention.
    """

    attention: Attention | None = None
    cross_attention: Attention | None = None
    depth: int | None = None
    projection: Callable[[int, int], Projection] = LinearProjection
    cross_projection: Callable[[int, int], Projection] = LinearProjection


@dataclass(frozen=True)
class Seq2SeqConfig:
    """Settings of a ``Seq2Seq``. Builds it when called.

    Args:
        encoder: settings of the encoder; the decoder has the same except for those in ``decoder``.
        decoder: settings of the decoder that differ.
        tied: which modules share one table of token vectors: "all" (source, target and scores; needs a joint
            vocabulary), "target" (target and scores) or "none".
        positions: see ``Positions``.
        max_length: maximum number of tokens of a sequence.
    """

    encoder: EncoderConfig = EncoderConfig(dim=128, num_heads=4, depth=4)  # noqa: RUF009 - frozen
    decoder: DecoderConfig = DecoderConfig()
    tied: str = "all"
    positions: str = "sinusoidal"
    max_length: int = 512

    def __post_init__(self) -> None:
        if self.tied not in TYINGS:
            raise ValueError(f"unknown tied {self.tied!r}; choose one of {', '.join(TYINGS)}")

    def __call__(self, source_size: int, target_size: int, attention: Attention) -> Seq2Seq:
        """Build the network.

        Args:
            source_size: number of token ids of the source.
            target_size: number of token ids of the target.
            attention: the attention of the encoder, and of the decoder unless it has its own.
        """
        if self.tied == "all" and source_size != target_size:
            raise ValueError(
                f"tied='all' needs one vocabulary for both languages, got {source_size} and {target_size} token ids; "
                "use a joint tokenizer, or tied='target'"
            )
        encoder = self.encoder(attention)
        decoder = self.build_decoder(attention)
        target = self.build_embedding(target_size)
        source = target if self.tied == "all" else self.build_embedding(source_size)
        scores = None
        if self.tied == "none":
            scores = Linear(self.encoder.dim, target_size, bias=False)
            nn.init.normal_(scores.weight, std=self.encoder.dim**-0.5)
        return Seq2Seq(encoder, decoder, source, target, scores)

    def build_decoder(self, attention: Attention) -> Decoder:
        """Build the decoder, with ``attention`` where it has no attention of its own."""
        return Decoder(
            attention if self.decoder.attention is None else self.decoder.attention,
            attention if self.decoder.cross_attention is None else self.decoder.cross_attention,
            replace(self.encoder, projection=self.decoder.projection),
            self.encoder.depth if self.decoder.depth is None else self.decoder.depth,
            self.decoder.cross_projection,
        )

    def build_embedding(self, vocab_size: int) -> Embedding:
        """Build the embedding of the source or the target."""
        dim = self.encoder.dim
        return Embedding(
            vocab_size,
            dim,
            max_length=self.max_length,
            positions=self.positions,
            dropout=self.encoder.dropout,
            on_sphere=self.encoder.on_sphere,
            # A table that also scores tokens needs small initial values, or the first scores are overconfident.
            table=partial(TokenTable, std=dim**-0.5),
            scale=dim**0.5,
        )
