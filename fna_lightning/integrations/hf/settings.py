"""alpha and kappa in a model's configuration, so that they are saved and read with it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fna_lightning.attention import Fractional
from fna_lightning.attention.kappa import Kappa, check_kappa

NAME = "fna"
FIELD = "fna"


@dataclass(frozen=True)
class Settings:
    """What FNA is in one model.

    Args:
        alpha: Levy index in [1, 2].
        kappa: a number, a rule, or the numbers of each head by the name of the layer.
    """

    alpha: float = 1.2
    kappa: Kappa | Mapping[str, Sequence[float]] = "text"

    def __post_init__(self) -> None:
        Fractional(self.alpha)
        for one in self.kappa.values() if isinstance(self.kappa, Mapping) else [self.kappa]:
            check_kappa(one)

    def attention(self, layer: str | None) -> Fractional | None:
        """Return the attention of the layer of that name; None if these settings do not know the layer."""
        if not isinstance(self.kappa, Mapping):
            return Fractional(self.alpha, self.kappa)
        numbers = self.kappa.get(layer or "")
        return None if numbers is None else Fractional(self.alpha, list(numbers))

    def write(self, config: Any) -> None:
        """Put the settings into a configuration; it then also says which attention a reload must use."""
        kappa = self.kappa
        if isinstance(kappa, Mapping):
            kappa = {name: list(numbers) for name, numbers in kappa.items()}
        setattr(config, FIELD, {"alpha": self.alpha, "kappa": kappa})
        # transformers does not save which attention a model uses, but reads this field when it loads a configuration
        config.attn_implementation = NAME

    @classmethod
    def read(cls, config: Any) -> "Settings":
        """Return the settings of a configuration; the defaults if it has none."""
        return cls(**getattr(config, FIELD, None) or {})

    @staticmethod
    def remove(config: Any) -> None:
        """Take the settings out of a configuration."""
        for name in (FIELD, "attn_implementation"):
            vars(config).pop(name, None)
