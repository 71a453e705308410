"""The Transformer from one sequence to another."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fna_lightning.attention import Attention, LinearProjection, Projection
from fna_lightning.nn.decoder import Decoder
from fna_lightning.nn.decoder_state import DecoderState
from fna_lightning.nn.embedding import Embedding
from fna_lightning.nn.encoder import Encoder
from fna_lightning.nn.token_table import TokenTable

TYINGS = ("all", "target", "none")


class Seq2Seq(nn.Module):
    """Encoder, decoder, embeddings and the scores of the next token.

    Args:
        source_size: number of token ids of the source; id 0 is padding.
        target_size: number of token ids of the target; id 0 is padding.
        attention: the attention among the tokens of the source.
        decoder_attention: the attention among the tokens of the target, each looking back only.
        cross_attention: the attention from the target to the source.
        dim: width of a token.
        depth: layers of the encoder.
        decoder_depth: layers of the decoder; None is as many as the encoder's.
        num_heads: number of heads; must divide ``dim``.
        ffn_dim: width of the feed-forward networks.
        projection: makes the map to queries and keys of the encoder, such as ``LinearProjection`` or
            ``OrthogonalProjection``.
        decoder_projection: the same of the decoder's self-attention.
        cross_projection: the same of the cross-attention.
        tied: what shares one table of token vectors: "all" (source, target and scores; needs a joint vocabulary),
            "target" (target and scores) or "none".
        positions: see ``Positions``.
        max_length: longest sequence.
        pre_norm: pre-LN layers (with a last norm) instead of post-LN.
        dropout: probability of dropping a coordinate of a sublayer's result, and of an embedding.
        on_sphere: whether the tokens that enter an attention are normalised to length 1.
    """

    def __init__(
        self,
        source_size: int,
        target_size: int,
        attention: Attention,
        decoder_attention: Attention,
        cross_attention: Attention,
        *,
        dim: int = 128,
        depth: int = 4,
        decoder_depth: int | None = None,
        num_heads: int = 4,
        ffn_dim: int = 256,
        projection: Callable[[int, int], Projection] = LinearProjection,
        decoder_projection: Callable[[int, int], Projection] = LinearProjection,
        cross_projection: Callable[[int, int], Projection] = LinearProjection,
        tied: str = "all",
        positions: str = "sinusoidal",
        max_length: int = 512,
        pre_norm: bool = False,
        dropout: float = 0.1,
        on_sphere: bool = False,
    ) -> None:
        super().__init__()
        if tied not in TYINGS:
            raise ValueError(f"unknown tied {tied!r}; choose one of {', '.join(TYINGS)}")
        if tied == "all" and source_size != target_size:
            raise ValueError(
                f"tied='all' needs one vocabulary for both languages, got {source_size} and {target_size} token ids; "
                "use a joint tokenizer, or tied='target'"
            )
        shape = {"dim": dim, "num_heads": num_heads, "ffn_dim": ffn_dim}
        style = {"pre_norm": pre_norm, "dropout": dropout, "on_sphere": on_sphere}
        self.encoder = Encoder(attention, depth=depth, projection=projection, **shape, **style)  # type: ignore[arg-type]
        self.decoder = Decoder(
            decoder_attention,
            cross_attention,
            depth=depth if decoder_depth is None else decoder_depth,
            projection=decoder_projection,
            cross_projection=cross_projection,
            **shape,  # type: ignore[arg-type]
            **style,  # type: ignore[arg-type]
        )
        # a table that also scores tokens starts small, or the first scores are far too sure of themselves
        embed = partial(
            Embedding,
            dim=dim,
            max_length=max_length,
            positions=positions,
            dropout=dropout,
            on_sphere=on_sphere,
            table=partial(TokenTable, std=dim**-0.5),
            scale=dim**0.5,
        )
        self.target = embed(target_size)
        self.source = self.target if tied == "all" else embed(source_size)
        self.scores = None
        if tied == "none":
            self.scores = nn.Linear(dim, target_size, bias=False)
            nn.init.normal_(self.scores.weight, std=dim**-0.5)

    @property
    def max_length(self) -> int:
        """Most tokens of a sequence."""
        return self.target.positions.max_length

    @property
    def score_weight(self) -> Tensor:
        """The (V, D) matrix whose product with a feature scores every token."""
        weight = self.target.tokens.weight if self.scores is None else self.scores.weight
        assert isinstance(weight, Tensor)
        return weight

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        """Return the (B, N, V) scores of the token after each of the (B, N) tokens of ``target``."""
        return self.score(self.features(source, lengths, target))

    def features(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        """Return the (B, N, D) vectors of the decoder, before tokens are scored.

        Args:
            source: (B, M) token ids, of which the first ``lengths`` are real.
            lengths: (B,).
            target: (B, N) token ids.
        """
        memory, mask = self.encode(source, lengths)
        return self.decoder(self.target(target), memory, mask)

    def score(self, features: Tensor) -> Tensor:
        """Return the score of every token as the next one."""
        return F.linear(features, self.score_weight)

    def encode(self, source: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Return the (B, M, D) tokens of the encoder and the (B, 1, 1, M) mask of real ones."""
        mask = (torch.arange(source.size(1), device=source.device) < lengths[:, None])[:, None, None, :]
        return self.encoder(self.source(source), mask), mask

    def begin(self, source: Tensor, lengths: Tensor) -> DecoderState:
        """Return the state of a decoder that has read the source and no token of the target yet."""
        return DecoderState(*self.encode(source, lengths), len(self.decoder.layers))

    def score_next(self, prefixes: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Return the (R, V) log-probabilities of the token after each of the (R, T) ``prefixes``, and the new state."""
        features = self.decoder.step(self.target(prefixes[:, -1:], start=prefixes.size(1) - 1), state)
        scores = self.score(features[:, 0])
        # in half precision many continuations would have the same log-probability
        return scores.log_softmax(dim=-1, dtype=torch.promote_types(scores.dtype, torch.float32)), state
