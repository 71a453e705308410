"""State of the random generators of Python, NumPy and PyTorch, as plain values and tensors."""

import random
from typing import Any

import numpy as np
import torch


def random_state() -> dict[str, Any]:
    """Return the state of all random generators of this process."""
    algorithm, keys, position, has_gauss, cached = np.random.get_state()
    state: dict[str, Any] = {
        "python": random.getstate(),
        "numpy": (str(algorithm), [int(key) for key in np.asarray(keys)], int(position), int(has_gauss), float(cached)),
        "torch": torch.get_rng_state(),
    }
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def set_random_state(state: dict[str, Any]) -> None:
    """Set all random generators to a state that ``random_state`` returned."""
    version, keys, gauss = state["python"]
    random.setstate((version, tuple(keys), gauss))
    algorithm, numbers, *rest = state["numpy"]
    np.random.set_state((algorithm, np.asarray(numbers, dtype=np.uint32), *rest))
    torch.set_rng_state(state["torch"])
    if "cuda" in state and torch.cuda.device_count() == len(state["cuda"]):
        torch.cuda.set_rng_state_all(state["cuda"])
