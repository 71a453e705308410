"""Random calls of the C kernel, forward and backward, which run.py executes with the sanitizers.

The tensors end where their memory ends, so an access one element past the end is reported. Other tests compare the
results with the reference formula; here they only have to be finite.
"""

import random
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from fna_lightning.attention import Attention, Fractional, Spherical
from fna_lightning.attention.kernels.cpu import library as cpu_library
from fna_lightning.nn import Dropout

# Values around the sizes of blocks (48 queries, 96 keys) and vectors (4, 8, 16).
LENGTHS = (0, 1, 2, 3, 5, 7, 15, 16, 17, 31, 47, 48, 49, 63, 95, 96, 97, 100, 145, 191, 193, 290)
WIDTHS = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 20, 31, 32, 33, 48, 63, 64, 65, 100)
CASES = 150


def random_tensor(shape: tuple[int, ...], draw: random.Random) -> Tensor:
    """Return a random tensor of this shape: contiguous, strided, expanded or not row-major."""
    b, h, n, d = shape
    layout = draw.choice(["plain", "tokens first", "columns", "every second", "inside", "one row", "one head", "zeros"])
    if layout == "tokens first":
        return torch.randn(b, n, h, d).transpose(1, 2)
    if layout == "columns":
        return torch.randn(b, h, d, n).mT
    if layout == "every second":
        return torch.randn(b, h, 2 * n, d)[:, :, 1::2]
    if layout == "inside":
        # The last columns of wider rows: a vector past the end of a row lies in the next row or, after the last row,
        # outside of the tensor.
        return torch.randn(b, h, n, d + 3)[..., 3:]
    if layout == "one row":
        return torch.randn(b, h, 1, d).expand(shape)
    if layout == "one head":
        return torch.randn(1, 1, n, d).expand(shape)
    return torch.zeros(shape) if layout == "zeros" else torch.randn(shape)


def random_mask(b: int, h: int, n: int, m: int, draw: random.Random) -> Tensor | None:
    """Return None or a mask that broadcasts, possibly with rows without any allowed key."""
    shape = draw.choice([None, None, (b, 1, 1, m), (n, m), (b, h, n, m), (1, m), (n, 1), (1, h, 1, m), ()])
    if shape is None:
        return None
    mask = torch.rand(shape) < draw.choice([0.0, 0.1, 0.5, 1.0])
    return mask.mT.contiguous().mT if len(shape) >= 2 and draw.random() < 0.3 else mask


def random_bias(b: int, h: int, n: int, m: int, draw: random.Random) -> Tensor | None:
    """Return None or a bias that broadcasts, possibly with numbers that mask out keys."""
    shapes = [None, None, (b, h, n, m), (1, h, n, m), (b, 1, n, m), (n, m), (m,), (h, 1, m), (b, 1, 1, m), (n, 1), ()]
    shape = draw.choice(shapes)
    if shape is None:
        return None
    bias = draw.choice([1.0, 100.0]) * torch.randn(shape)
    hidden = draw.choice([None, -torch.inf, torch.finfo(torch.float32).min])
    if hidden is not None:
        bias = bias.masked_fill(torch.rand(shape) < 0.3, hidden)
    return bias.mT.contiguous().mT if len(shape) >= 2 and draw.random() < 0.3 else bias


def random_attention(draw: random.Random) -> Attention:
    cls = draw.choice([Fractional, Spherical])
    learn = draw.choice([(), (), ("kappa",), ("alpha", "kappa")])
    settings = {"dropout": draw.choice([0.0, 0.0, 0.3, 0.99999999]), "kernel": "cpu"}
    alpha = draw.choice([1.0 if not learn else 1.1, 1.2, 1.9])
    if not learn and draw.random() < 0.3:
        alpha = 2.0
    kappa = draw.choice(["auto", "vision", 1e-2 if cls is Spherical else 1e-6, 1.0, 1e6])
    return cls(alpha, kappa, learn=learn, **settings).train()


@pytest.fixture(params=[1, 4], ids=lambda threads: f"{threads} threads", autouse=True)
def threads(request, monkeypatch) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    # Use several threads in small calls, too.
    monkeypatch.setattr(cpu_library, "WORTH_A_THREAD", 100)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("seed", range(CASES))
def test_forward_and_backward(seed) -> None:
    draw = random.Random(seed)
    torch.manual_seed(seed)
    b, h = draw.choice([1, 1, 2, 3]), draw.choice([1, 2, 3, 5])
    n, m = draw.choice(LENGTHS), draw.choice(LENGTHS)
    d, d_v = draw.choice(WIDTHS), draw.choice(WIDTHS)
    tied = draw.random() < 0.2
    m = n if tied else m
    groups = draw.choice([size for size in range(1, h + 1) if h % size == 0])
    groups = h if tied else groups
    q = random_tensor((b, h, n, d), draw)
    k = q if tied else random_tensor((b, groups, m, d), draw)
    v = random_tensor((b, groups, m, d_v), draw)
    scale = draw.choice([0.0, 1e-3, 1.0, 30.0, 1e18])
    poison = draw.choice([None, None, None, float("nan"), float("inf")])
    q, k = q * scale, k * scale
    if poison is not None and n and m:
        q[..., draw.randrange(n), 0] = poison
        k[..., draw.randrange(m), d - 1] = poison
    attention = random_attention(draw)
    attention.exclude_self = n == m and draw.random() < 0.3
    leaves = [x.requires_grad_() for x in (q, k, v)]
    offset = m - n if n == m else draw.choice([0, 0, 3, -5, 1000, -1000, 2**62, -(2**62)])
    bias = random_bias(b, h, n, m, draw)
    if bias is not None and draw.random() < 0.7:
        leaves.append(bias.requires_grad_())
    mask = random_mask(b, h, n, m, draw)
    out = attention(*leaves[:3], mask, is_causal=draw.random() < 0.4, offset=offset, bias=bias, enable_gqa=groups != h)
    assert out.shape == (b, h, n, d_v)
    upstream = random_tensor(tuple(out.shape), draw)
    learned = list(attention.parameters())
    grads = torch.autograd.grad(out, [*leaves, *learned], upstream, allow_unused=True)
    for grad, leaf in zip(grads, leaves, strict=False):
        assert grad.shape == leaf.shape
    if poison is None and scale <= 30.0:
        assert out.isfinite().all()


@pytest.mark.parametrize("count", [0, 1, 3, 15, 16, 17, 16383, 16384, 16385, 200_001])
def test_dropout(count) -> None:
    x = torch.randn(count, requires_grad=True)
    for p in (0.1, 0.5, 0.99999999):
        Dropout(p).train()(x).sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()
