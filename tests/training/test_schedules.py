"""The schedule that knows how long the training is."""

import pytest
import torch

from fna_lightning.training.schedules import WarmupCosine


def rates(total: int, **settings: float) -> list[float]:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=2.0)
    schedule = WarmupCosine(optimizer, **settings)
    schedule.set_total_steps(total)
    found = []
    for _ in range(total):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return [*found, optimizer.param_groups[0]["lr"]]


def test_it_rises_to_the_rate_and_falls_to_the_floor() -> None:
    found = rates(100, warmup=0.2, floor=0.1)
    assert found.index(max(found)) == 20
    assert max(found) == pytest.approx(2.0)
    assert found[:21] == sorted(found[:21])
    assert found[20:] == sorted(found[20:], reverse=True)
    assert 0 < found[0] < 0.2
    assert found[-1] == pytest.approx(0.2)


def test_mistakes() -> None:
    with pytest.raises(ValueError, match=r"warmup must be a share of all steps in \[0, 1\), got 5"):
        rates(10, warmup=5)
    with pytest.raises(ValueError, match=r"floor must be a share of the highest rate in \[0, 1\], got -1"):
        rates(10, floor=-1)
