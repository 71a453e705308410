"""The state of every random generator a run draws from, as plain values a checkpoint can hold."""

import random
from typing import Any

import numpy as np
import torch


def random_state() -> dict[str, Any]:
    """Return where the generators of Python, numpy and torch stand."""
    kind, keys, position, has_gauss, cached = np.random.get_state()
    state: dict[str, Any] = {
        "python": random.getstate(),
        "numpy": (str(kind), [int(key) for key in np.asarray(keys)], int(position), int(has_gauss), float(cached)),
        "torch": torch.get_rng_state(),
    }
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def set_random_state(state: dict[str, Any]) -> None:
    """Put the generators where ``random_state`` found them."""
    version, keys, gauss = state["python"]
    random.setstate((version, tuple(keys), gauss))
    kind, numbers, *rest = state["numpy"]
    np.random.set_state((kind, np.asarray(numbers, dtype=np.uint32), *rest))
    torch.set_rng_state(state["torch"])
    if "cuda" in state and torch.cuda.device_count() == len(state["cuda"]):
        torch.cuda.set_rng_state_all(state["cuda"])
