"""State of the random generators."""

import io
import random
from typing import Any

import numpy as np
import torch

from fna_lightning.checkpoints.exact.rng import random_state, set_random_state


def draw() -> tuple[Any, ...]:
    # a normal number leaves a second one in the generators of Python and NumPy
    return random.gauss(0, 1), random.random(), np.random.standard_normal(), np.random.random(), torch.rand(3).tolist()


def test_all_generators_repeat_their_numbers() -> None:
    draw()
    state = random_state()
    numbers = [draw() for _ in range(3)]
    set_random_state(state)
    assert [draw() for _ in range(3)] == numbers


def test_the_state_is_plain_values() -> None:
    state = random_state()
    numbers = draw()
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    set_random_state(torch.load(file, weights_only=True))
    assert draw() == numbers
