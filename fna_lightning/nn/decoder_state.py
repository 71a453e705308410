"""What a decoder remembers between two tokens: keys and values, so that each token is computed once."""

from torch import Tensor

from fna_lightning.attention import KeyValueCache


class DecoderState:
    """The caches of all layers for a batch of sentences, each with the same number of hypotheses.

    The keys and values of a source sentence are held once, however many hypotheses ask them.

    Args:
        memory: (S, M, D) tokens of the encoder.
        mask: (S, 1, 1, M), True at real tokens.
        depth: number of decoder layers.
    """

    def __init__(self, memory: Tensor, mask: Tensor | None, depth: int) -> None:
        self.memory = memory
        self.mask = mask
        self.width = 1
        self.self_attn = [KeyValueCache() for _ in range(depth)]
        self.cross_attn = [KeyValueCache() for _ in range(depth)]

    def __len__(self) -> int:
        """Return how many tokens of the target have been read."""
        return len(self.self_attn[0])

    def select(self, rows: Tensor) -> "DecoderState":
        """Keep the hypotheses ``rows``, (sentences, hypotheses); those in a line belong to one sentence."""
        sentences = rows[:, 0] // self.width
        for cache in self.self_attn:
            cache.reorder(rows.flatten())
        if len(sentences) != len(self.memory):
            self.memory = self.memory[sentences]
            self.mask = None if self.mask is None else self.mask[sentences]
            for cache in self.cross_attn:
                cache.reorder(sentences)
        self.width = rows.size(1)
        return self
