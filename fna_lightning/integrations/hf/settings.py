"""alpha and kappa in the configuration of a transformers model, so that they are saved and loaded with it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fna_lightning.attention import Fractional
from fna_lightning.attention.kappa import Kappa, check_kappa

# value of attn_implementation
NAME = "fna"
# attribute of the configuration
FIELD = "fna"


@dataclass(frozen=True)
class Settings:
    """Settings of FNA in one model.

    Args:
        alpha: Levy index in [1, 2].
        kappa: a number, a rule, or {name of the layer: one number per head}.
    """

    alpha: float = 1.2
    kappa: Kappa | Mapping[str, Sequence[float]] = "text"

    def __post_init__(self) -> None:
        Fractional(self.alpha)
        for kappa in self.kappa.values() if isinstance(self.kappa, Mapping) else [self.kappa]:
            check_kappa(kappa)

    def attention(self, layer: str | None) -> Fractional | None:
        """Return the attention of a layer by name; None if the settings have no kappa for it."""
        if not isinstance(self.kappa, Mapping):
            return Fractional(self.alpha, self.kappa)
        numbers = self.kappa.get(layer or "")
        return None if numbers is None else Fractional(self.alpha, list(numbers))

    def write(self, config: Any) -> None:
        """Store the settings in a configuration."""
        kappa = self.kappa
        if isinstance(kappa, Mapping):
            kappa = {name: list(numbers) for name, numbers in kappa.items()}
        setattr(config, FIELD, {"alpha": self.alpha, "kappa": kappa})

    @classmethod
    def read(cls, config: Any) -> "Settings":
        """Return the settings stored in a configuration, or the defaults."""
        return cls(**getattr(config, FIELD, None) or {})

    @staticmethod
    def remove(config: Any) -> None:
        """Remove the settings from a configuration."""
        vars(config).pop(FIELD, None)
