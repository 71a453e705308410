"""The kernel that "auto" chooses on CUDA, with kernels that claim to be available; no GPU is needed."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from fna_lightning.attention import Attention, DotProduct, Fractional, Spherical, Uniform, kernels
from fna_lightning.attention.kernels import Call, choose, triton
from fna_lightning.attention.kernels.chunked import BLOCK_ELEMENTS, GPU_BLOCK_ELEMENTS, query_blocks
from fna_lightning.attention.masks import AttentionMask

ORDER = ("cpu", "sdpa", "triton", "flex", "chunked", "reference")


@pytest.fixture
def on_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make triton and flex available, as on a GPU that Triton supports."""
    for name in ("triton", "flex"):
        monkeypatch.setattr(kernels.KERNELS[name], "unavailable", lambda: None)
    monkeypatch.setattr(triton, "_too_old", lambda device: None)


def chosen(
    attention: Attention,
    *,
    d: int = 8,
    dropout: float = 0.0,
    device: str = "cuda",
    bias: Callable[[], Tensor | None] = lambda: None,
) -> str:
    """Return the name of the kernel for tensors without memory on ``device``."""
    with FakeTensorMode():
        q, k, v = torch.empty(3, 2, 3, 5, d, device=device).unbind()
        return choose(Call(attention, q, k, v, AttentionMask(bias=bias()), dropout)).name


def test_order_of_the_kernels() -> None:
    assert list(kernels.KERNELS) == list(ORDER)


@pytest.mark.usefixtures("on_cuda")
def test_sdpa_computes_dot_products_and_triton_distances() -> None:
    assert chosen(DotProduct()) == chosen(Uniform()) == "sdpa"
    assert chosen(Fractional(1.2)) == chosen(Spherical(1.2)) == "triton"
    assert chosen(Fractional(2.0)) == "triton"


@pytest.mark.usefixtures("on_cuda")
def test_next_kernel_where_triton_refuses() -> None:
    assert chosen(Fractional(1.2), d=136) == "flex"
    assert chosen(Fractional(1.2), d=136, dropout=0.1) == "chunked"
    assert chosen(Fractional(1.2), d=264) == "chunked"
    # dropout is no reason against PyTorch's fused kernel
    assert chosen(Fractional(2.0), d=136, dropout=0.1) == "sdpa"
    assert chosen(Fractional(1.2, density_power=0.5)) == "chunked"


def test_without_triton(on_cuda: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels.KERNELS["triton"], "unavailable", lambda: "there is no triton")
    assert chosen(Fractional(1.2)) == "flex"
    assert chosen(Fractional(1.2), bias=lambda: torch.zeros(5, 5, device="cuda")) == "flex"
    assert chosen(Fractional(1.2), bias=lambda: torch.zeros(5, 5, device="cuda", requires_grad=True)) == "chunked"
    assert chosen(Fractional(2.0)) == "sdpa"


@pytest.mark.usefixtures("on_cuda")
def test_no_gpu_kernel_takes_tensors_of_the_cpu() -> None:
    assert chosen(Fractional(1.2), device="cpu") in ("cpu", "chunked")
    assert chosen(DotProduct(), device="cpu") == "sdpa"


@pytest.mark.parametrize(("device", "elements"), [("cpu", BLOCK_ELEMENTS), ("cuda", GPU_BLOCK_ELEMENTS)])
def test_blocks_of_chunked_suit_the_device(device: str, elements: int) -> None:
    with FakeTensorMode():
        q, k = torch.empty(2, 8, 8, 4096, 16, device=device).unbind()
    blocks = query_blocks(q, k)
    sizes = {stop - start for start, stop in blocks[:-1]}
    assert sizes == {elements // (8 * 8 * 4096)}
    assert blocks[0][0] == 0
    assert blocks[-1][1] == 4096
    assert len(blocks) == 4096 * 8 * 8 * 4096 // elements
