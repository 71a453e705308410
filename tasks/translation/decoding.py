"""How a translation is searched for: the settings of a search, as a configuration names them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Decoding:
    """Settings of beam search.

    Args:
        beam: hypotheses kept; 1 is greedy.
        length_penalty: a hypothesis's log-probability is divided by its length to this power.
        max_ratio: most tokens of a translation for each token of its source ...
        max_extra: ... and this many more.
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
        """Return the most tokens, the end included, of the translation of ``source`` tokens by a model of ``limit``."""
        return min(int(self.max_ratio * source) + self.max_extra, limit)
