"""Settings of beam search, as they are given in a configuration."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Decoding:
    """Settings of beam search.

    A translation has at most ``max_ratio`` * (length of its source) + ``max_extra`` tokens.

    Args:
        beam: number of hypotheses; 1 is greedy search.
        length_penalty: the log-probability of a hypothesis is divided by its length to this power.
        max_ratio: maximum number of tokens per source token.
        max_extra: number of tokens that is added to the maximum.
    """

    beam: int = 5
    length_penalty: float = 1.0
    max_ratio: float = 1.5
    max_extra: int = 10

    def __post_init__(self) -> None:
        if self.beam < 1:
            raise ValueError(f"beam must be at least 1 (greedy), got {self.beam}")
        if self.max_ratio < 0.0 or self.max_extra < 1:
            raise ValueError(
                f"max_ratio must not be negative and max_extra at least 1, got {self.max_ratio} and {self.max_extra}"
            )

    def longest(self, source: int, limit: int) -> int:
        """Return the maximum length of a translation, including END.

        Args:
            source: number of source tokens.
            limit: maximum length that the model supports.
        """
        return min(int(self.max_ratio * source) + self.max_extra, limit)
