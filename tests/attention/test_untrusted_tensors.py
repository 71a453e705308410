"""Tensors that do not match raise an error before any kernel reads them; no kernel reads memory out of bounds."""

import math
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from fna_lightning import attention_weights, fractional_attention
from fna_lightning.attention import (
    Fractional,
    FractionalMultiheadAttention,
    KeyValueCache,
    MultiheadAttention,
)
from fna_lightning.attention.kernels.cpu import library as cpu_library

from helpers.attention_cases import NAMED_ATTENTIONS, refusal

pytestmark = pytest.mark.e2e

needs_kernel = pytest.mark.skipif(
    cpu_library.unavailable() is not None, reason=f"no C kernel here: {cpu_library.unavailable()}"
)
NAMES = ("auto", "cpu", "sdpa", "chunked", "reference")


def tokens(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def every_pair() -> list[tuple[str, str]]:
    """Return the name of every attention with every kernel that computes it here."""
    q = tokens(1, 1, 2, 8)
    return [
        (case, kernel)
        for case, make in NAMED_ATTENTIONS.items()
        for kernel in NAMES
        if kernel == "auto" or refusal(make(kernel=kernel), kernel, q, q, q) is None
    ]


EVERY = pytest.mark.parametrize(("case", "kernel"), every_pair())


def attack(code: str) -> str:
    """Run code in a separate process, which must not crash, and return the last line of its output."""
    imports = "import torch; torch.set_num_threads(1)\nfrom fna_lightning.attention import *\n"
    result = subprocess.run(
        [sys.executable, "-c", imports + code],
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode >= 0, f"killed by signal {-result.returncode}"
    return (result.stdout + result.stderr).strip().splitlines()[-1]


ATTACKS = {
    "values, forward": "q = torch.randn(1, 1, 4, 8); fractional_attention(q, q, torch.randn(1, 1, 5_000_000, 8))",
    "values, backward": (
        "q = torch.randn(1, 1, 4, 8, requires_grad=True); v = torch.randn(1, 1, 5_000_000, 8, requires_grad=True)\n"
        "fractional_attention(q, q, v).sum().backward()"
    ),
    "PyTorch's layer": (
        "layer = FractionalMultiheadAttention(16, 2, batch_first=True); x = torch.randn(1, 4, 16)\n"
        "layer(x, x, torch.randn(1, 5_000_000, 16), need_weights=False)"
    ),
    "our layer": (
        "layer = MultiheadAttention(16, 2, Fractional()); x = torch.randn(1, 4, 16); cache = KeyValueCache()\n"
        "layer(x, cache=cache); cache.append(torch.randn(1, 2, 4, 8), torch.randn(1, 2, 5_000_000, 8))\n"
        "layer(x, cache=cache)"
    ),
    "keys on another device": "q = torch.randn(1, 1, 4, 8); fractional_attention(q, q.to('meta'), q)",
    "the operator": (
        "q = torch.randn(1, 1, 4, 8)\n"
        "torch.ops.fna_lightning.radial_attention(q, q, torch.randn(1, 1, 9_000_000, 8), None, None, torch.ones(1), "
        "torch.ones(1), None, 0, False, False, False, 0, 0.0, 'cpu')"
    ),
    "its heads": (
        "q = torch.randn(1, 4096, 4, 8)\n"
        "torch.ops.fna_lightning.radial_attention(q, q, q, None, None, torch.ones(0), torch.ones(0), None, 0, False, "
        "False, False, 0, 0.0, 'cpu')"
    ),
    "its bias": (
        "q = torch.randn(1, 2, 4, 8); bias = torch.randn(9_000_000)[-2:]\n"
        "torch.ops.fna_lightning.radial_attention(q, q, q, None, bias, torch.ones(2), torch.ones(2), None, 0, False, "
        "False, False, 0, 0.0, 'cpu')"
    ),
    "its groups": (
        "q = torch.randn(1, 5000, 4, 8); k = torch.randn(1, 3, 4, 8); ones = torch.ones(5000)\n"
        "torch.ops.fna_lightning.radial_attention(q, k, k, None, None, ones, ones, None, 0, False, False, False, 0, "
        "0.0, 'cpu')"
    ),
    "no key heads": (
        "q = torch.randn(1, 5000, 4, 8); k = torch.randn(1, 0, 4, 8); ones = torch.ones(5000)\n"
        "torch.ops.fna_lightning.radial_attention(q, k, k, None, None, ones, ones, None, 0, False, False, False, 0, "
        "0.0, 'cpu')"
    ),
    "grouped values": (
        "q = torch.randn(1, 64, 4, 8); k = torch.randn(1, 32, 4, 8)\n"
        "fractional_attention(q, k, k[:, :2], enable_gqa=True)"
    ),
    "keys without memory": (
        "q = torch.randn(1, 1, 4, 8); k = torch.randn(1, 1, 1, 8).expand(1, 1, 2**59, 8)\n"
        "fractional_attention(q, k, k, kernel='cpu')"
    ),
}


@needs_kernel
@pytest.mark.parametrize("name", ATTACKS)
def test_no_out_of_bounds_access(name) -> None:
    # The layer raises the errors of nn.MultiheadAttention.
    error = "AssertionError" if name == "PyTorch's layer" else "ValueError"
    assert attack(ATTACKS[name]).startswith(f"{error}: ")


@EVERY
def test_values_that_are_longer_or_shorter_than_keys(case, kernel) -> None:
    attention, q = NAMED_ATTENTIONS[case](kernel=kernel), tokens(2, 3, 4, 8)
    for length in (0, 1, 3, 5, 200):
        message = f"k has 4 keys and v has {length} values; they must have the same length"
        with pytest.raises(ValueError, match=message):
            attention(q, q, tokens(2, 3, length, 8))


@EVERY
def test_every_tensor_must_be_on_the_same_device(case, kernel) -> None:
    attention, q = NAMED_ATTENTIONS[case](kernel=kernel), tokens(2, 3, 4, 8)
    far = q.to("meta")
    mask, bias = torch.ones(4, 4, dtype=torch.bool), torch.zeros(4, 4)
    for call in ((far, q, q), (q, far, q), (q, q, far), (far, far, q)):
        with pytest.raises(ValueError, match=r"is on (cpu|meta) and .* is on (cpu|meta); move them to the same device"):
            attention(*call)
    with pytest.raises(ValueError, match="q is on cpu and attn_mask is on meta"):
        attention(q, q, q, mask.to("meta"))
    with pytest.raises(ValueError, match="q is on cpu and bias is on meta"):
        attention(q, q, q, bias=bias.to("meta"))
    for arguments in ({"mask": mask.to("meta")}, {"bias": bias.to("meta")}):
        with pytest.raises(ValueError, match="is on meta; move them to the same device"):
            attention.weights(q, q, **arguments)
    with pytest.raises(ValueError, match="q is on cpu and k is on meta"):
        attention.weights(q, far)


def test_learned_parameters_must_be_on_the_same_device() -> None:
    attention, q = Fractional(1.2, learn=("alpha", "kappa")).to("meta"), tokens(2, 3, 4, 8)
    for kernel in NAMES:
        attention.kernel = kernel
        with pytest.raises(ValueError, match="learned values of the attention are on meta and q is on cpu"):
            attention(q, q, q)


@EVERY
def test_dtypes_that_differ_or_are_not_floating_point(case, kernel) -> None:
    attention, q = NAMED_ATTENTIONS[case](kernel=kernel), tokens(2, 3, 4, 8)
    for call, names in (
        ((q, q.bfloat16(), q), "q and k"),
        ((q, q, q.half()), "k and v"),
        ((q, q, q.double()), "k and v"),
    ):
        first, second = names.split(" and ")
        with pytest.raises(
            TypeError, match=rf"{first} is torch\.\w+ and {second} is torch\.\w+; they must have the same"
        ):
            attention(*call)
    for dtype in (torch.int64, torch.bool, torch.complex64):
        with pytest.raises(TypeError, match="must be floating-point tensors, got torch"):
            attention(*(q.to(dtype),) * 3)


@EVERY
def test_axes_that_do_not_match(case, kernel) -> None:
    attention = NAMED_ATTENTIONS[case](kernel=kernel)
    with pytest.raises(ValueError, match=r"\(..., tokens, width\), got \(8,\)"):
        attention(*(tokens(8),) * 3)
    q = tokens(2, 3, 4, 8)
    with pytest.raises(ValueError, match=r"v must be \(..., tokens, width\), got \(4,\)"):
        attention(q, q, tokens(4))
    with pytest.raises(ValueError, match=r"axes of q and those of k do not broadcast: \(2, 3\) and \(5, 3\)"):
        attention(q, tokens(5, 3, 4, 8), tokens(5, 3, 4, 8))
    with pytest.raises(ValueError, match=r"axes of q and k and those of v do not broadcast: \(2, 3\) and \(2, 5\)"):
        attention(q, q, tokens(2, 5, 4, 8))
    with pytest.raises(ValueError, match="offset must lie between"):
        attention(q, q, q, is_causal=True, offset=2**63 - 2)


@EVERY
def test_valid_layouts(case, kernel) -> None:
    """Strided, expanded and empty tensors, values of another width, and axes that broadcast are accepted."""
    attention, reference = NAMED_ATTENTIONS[case](kernel=kernel), NAMED_ATTENTIONS[case](kernel="reference")
    wide = tokens(2, 9, 3, 24)
    strided = [x.transpose(1, 2) for x in wide.chunk(3, dim=-1)]
    expanded = tokens(1, 1, 1, 8).expand(2, 3, 9, 8)
    cases = [
        strided,
        [x.mT.contiguous().mT for x in strided],
        [strided[0], expanded, expanded],
        [expanded, strided[1], strided[2][..., :3]],
        [strided[0], strided[1][:, :1], strided[2][:, :1]],
        [strided[0][:1], strided[1][:1], strided[2]],
        [strided[0][..., ::2, :], strided[1], strided[2]],
        [x[:, :, :1] for x in strided],
    ]
    for q, k, v in cases:
        leaves, others = ([x.detach().clone(memory_format=torch.preserve_format) for x in (q, k, v)] for _ in range(2))
        both = []
        for module, tensors in ((attention, leaves), (reference, others)):
            tensors = [x.requires_grad_(index != 1) for index, x in enumerate(tensors)]
            out = module(*tensors)
            both.append([out, *torch.autograd.grad(out.square().sum(), [tensors[0], tensors[2]])])
        for got, want in zip(*both, strict=True):
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    q = strided[0]
    assert attention(q[:, :, :0], q, q).shape == (2, 3, 0, 8)
    assert attention(q, q[:, :, :0], q[:, :, :0]).eq(0.0).all()
    assert attention(q[:0], q[:0], q[:0]).shape == (0, 3, 9, 8)
    assert attention(q, q, q[..., :0]).shape == (2, 3, 9, 0)


def test_tokens_of_width_0_use_another_kernel() -> None:
    q, v = torch.zeros(1, 2, 3, 0), tokens(1, 2, 3, 4)
    mean = v.mean(dim=-2, keepdim=True).expand_as(v)
    for kernel in ("auto", "chunked", "reference"):
        torch.testing.assert_close(Fractional(1.2, 1.0, 3.0, kernel=kernel)(q, q, v), mean)


def operator(**changes: Any) -> Callable[[], Any]:
    """Return a function that calls the registered operator with these arguments changed."""
    q = tokens(2, 3, 40, 8)
    arguments = {"q": q, "k": q, "v": q, "mask": None, "bias": None, "kappa": torch.ones(3), "exponent": torch.ones(3)}
    arguments |= {
        "seed": None,
        "profile": 0,
        "sphere": False,
        "causal": False,
        "exclude_self": False,
        "offset": 0,
        "dropout": 0.0,
        "kernel": "cpu",
    }
    return lambda: torch.ops.fna_lightning.radial_attention(*(arguments | changes).values())


EXPANDED = torch.zeros(2, 3, 1, 8).expand(2, 3, 2**40, 8)
WRONG: dict[str, dict[str, Any]] = {
    "longer values": {"v": tokens(2, 3, 41, 8)},
    "shorter values": {"v": tokens(2, 3, 39, 8)},
    "heads of values": {"v": tokens(2, 2, 40, 8)},
    "batch of values": {"v": tokens(1, 3, 40, 8)},
    "width of keys": {"k": tokens(2, 3, 40, 7)},
    "heads of keys": {"k": tokens(2, 1, 40, 8)},
    "three axes": {"q": tokens(3, 40, 8)},
    "float64 values": {"v": tokens(2, 3, 40, 8).double()},
    "bfloat16 queries": {"q": tokens(2, 3, 40, 8).bfloat16()},
    "kappa of two heads": {"kappa": torch.ones(2)},
    "exponent with two axes": {"exponent": torch.ones(3, 1)},
    "float64 exponent": {"exponent": torch.ones(3).double()},
    "wide mask": {"mask": torch.ones(40, 41, dtype=torch.bool)},
    "mask with five axes": {"mask": torch.ones(2, 2, 3, 40, 40, dtype=torch.bool)},
    "float mask": {"mask": torch.ones(40, 40)},
    "wide bias": {"bias": torch.zeros(40, 41)},
    "bias of two heads": {"bias": torch.zeros(2, 1, 40)},
    "bias with five axes": {"bias": torch.zeros(1, 2, 3, 40, 40)},
    "boolean bias": {"bias": torch.ones(40, 40, dtype=torch.bool)},
    "float64 bias": {"bias": torch.zeros(40, 40).double()},
    "bfloat16 bias": {"bias": torch.zeros(40, 40).bfloat16()},
    "all bfloat16": {name: tokens(2, 3, 40, 8).bfloat16() for name in ("q", "k", "v")},
    "two key heads": {"k": tokens(2, 2, 40, 8), "v": tokens(2, 2, 40, 8)},
    "no key heads": {"k": tokens(2, 0, 40, 8), "v": tokens(2, 0, 40, 8)},
    "more key heads than query heads": {"k": tokens(2, 6, 40, 8), "v": tokens(2, 6, 40, 8)},
    "kappa of the key heads": {"k": tokens(2, 1, 40, 8), "v": tokens(2, 1, 40, 8), "kappa": torch.ones(1)},
    "dropout without a seed": {"dropout": 0.5},
    "seed with an axis": {"dropout": 0.5, "seed": torch.ones(1, dtype=torch.int64)},
    "float seed": {"dropout": 0.5, "seed": torch.tensor(1.0)},
    "unknown kernel": {"kernel": "gpu"},
    "unknown profile": {"profile": 3},
    "Student on the sphere": {"profile": 2, "sphere": True},
    "offset": {"offset": 2**62 + 1},
    "dropout 1": {"dropout": 1.0},
    "dropout nan": {"dropout": math.nan},
    "no coordinates": {"q": torch.zeros(2, 3, 40, 0), "k": torch.zeros(2, 3, 40, 0)},
    "too many keys": {"k": EXPANDED, "v": EXPANDED},
}


@needs_kernel
@pytest.mark.parametrize("changes", WRONG.values(), ids=WRONG)
def test_the_operator_checks_its_arguments(changes) -> None:
    with pytest.raises((ValueError, TypeError)):
        operator(**changes)()


@needs_kernel
@pytest.mark.parametrize("name", ["q", "k", "v", "mask", "bias", "kappa", "exponent", "seed"])
def test_the_operator_refuses_tensors_on_another_device(name) -> None:
    far = torch.ones(3) if name in ("kappa", "exponent") else tokens(2, 3, 40, 8)
    if name in ("mask", "bias"):
        far = torch.ones(40, 40, dtype=torch.bool if name == "mask" else torch.float32)
    if name == "seed":
        far = torch.tensor(1)
    with pytest.raises((ValueError, TypeError), match=r"device|on cpu|on meta"):
        operator(**{name: far.to("meta")})()


@needs_kernel
def test_the_derivative_checks_its_arguments() -> None:
    q, stats, ones = tokens(2, 3, 40, 8), torch.ones(2, 3, 40, 2), torch.ones(3)
    settings = (0, False, False, False, 0, 0.0, "cpu", False, False, False)

    def backward(grad: Tensor, out: Tensor, stats: Tensor) -> Any:
        return torch.ops.fna_lightning.radial_attention_backward(
            grad, q, q, q, None, None, ones, ones, None, out, stats, *settings
        )

    assert len(backward(q, q, stats)) == 6
    for wrong in ((q[:, :, :2], q, stats), (q, q[:1], stats), (q, q, stats[..., :1]), (q, q, stats.double())):
        with pytest.raises((ValueError, TypeError)):
            backward(*wrong)
    k, bias = tokens(2, 2, 40, 8), torch.zeros(39, 40)
    for keys, added in ((k, None), (q, bias)):
        with pytest.raises(ValueError, match=r"multiple of|does not broadcast"):
            torch.ops.fna_lightning.radial_attention_backward(
                q, q, keys, keys, None, added, ones, ones, None, q, stats, *settings[:-1], True
            )


@needs_kernel
def test_an_expanded_kappa_is_read_correctly() -> None:
    want = operator(kappa=torch.full((3,), 5.0))()[0]
    torch.testing.assert_close(operator(kappa=torch.tensor([5.0]).expand(3))()[0], want)


def test_torch_multihead_names_its_arguments() -> None:
    layer, x = FractionalMultiheadAttention(16, 2, batch_first=True), tokens(2, 4, 16)
    padding, mask = torch.zeros(2, 4, dtype=torch.bool), torch.zeros(4, 4, dtype=torch.bool)
    with pytest.raises(AssertionError, match=r"two axes .* or three .* got \(2, 4, 16\), \(4, 16\) and \(2, 4, 16\)"):
        layer(x, x[0], x)
    with pytest.raises(AssertionError, match=r"key_padding_mask must be \(batch, keys\) with 2 and 4, got \(2, 7\)"):
        layer(x, x, x, key_padding_mask=torch.zeros(2, 7, dtype=torch.bool))
    with pytest.raises(RuntimeError, match=r"attn_mask must be \(4, 4\).*got \(4, 5\)"):
        layer(x, x, x, attn_mask=torch.zeros(4, 5, dtype=torch.bool), key_padding_mask=padding)
    with pytest.raises(AssertionError, match=r"key_padding_mask must be boolean .* got torch.int64"):
        layer(x, x, x, key_padding_mask=padding.long())
    for name, tensor in (("key_padding_mask", padding), ("attn_mask", mask)):
        with pytest.raises(RuntimeError, match=f"query is on cpu and {name} is on meta"):
            layer(x, x, x, **{name: tensor.to("meta")}, need_weights=False)
    with pytest.raises(AssertionError, match=r"same batch and length, got \(2, 4, 16\) and \(2, 3, 16\)"):
        layer(x, x, x[:, :3])


def test_multihead_with_a_cache_or_context_that_does_not_match() -> None:
    layer, x, cache = MultiheadAttention(16, 2, Fractional()), tokens(2, 4, 16), KeyValueCache()
    layer(x, cache=cache)
    with pytest.raises(ValueError, match="k has 8 keys and v has 9 values"):
        cache.append(tokens(2, 2, 8, 8), tokens(2, 2, 9, 8))
    for k, v in ((tokens(1, 2, 4, 8), tokens(1, 2, 4, 8)), (tokens(2, 2, 4, 8), tokens(2, 2, 4, 7))):
        with pytest.raises(ValueError, match="do not continue the cache"):
            cache.append(k, v)
    cache.reorder(torch.tensor([0, 1, 1]))
    with pytest.raises(ValueError, match="do not continue the cache"):
        layer(x, cache=cache)
    with pytest.raises(ValueError, match="is on cpu and k is on meta"):
        layer(x, torch.zeros(2, 4, 16, device="meta"))


def test_functions_check_their_masks() -> None:
    q = tokens(2, 3, 4, 8)
    for function in (
        lambda **options: fractional_attention(q, q, q, **options),
        lambda **options: attention_weights(q, q, **options),
    ):
        with pytest.raises(ValueError, match="attn_mask is on meta"):
            function(attn_mask=torch.ones(4, 4, dtype=torch.bool, device="meta"))
        with pytest.raises(ValueError, match=r"\(4, 5\) does not broadcast to \(2, 3, 4, 4\)"):
            function(attn_mask=torch.ones(4, 5, dtype=torch.bool))
