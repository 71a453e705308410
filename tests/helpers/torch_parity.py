"""Calls of ``nn.MultiheadAttention`` that a replacement must answer in the same way: shapes, dtypes, error types."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

E, H, B, N, M = 12, 2, 3, 5, 7
BOOL, INT, FLOAT, DOUBLE, HALF = torch.bool, torch.int64, torch.float32, torch.float64, torch.bfloat16


@dataclass(frozen=True)
class ParityCase:
    """One layer and one call: constructor arguments, tokens and arguments of ``forward``."""

    name: str
    build: tuple[tuple[Any, ...], dict[str, Any]] = ((E, H), {})
    tokens: tuple[tuple[int, ...], ...] = ((B, N, E), (B, M, E), (B, M, E))
    call: dict[str, Any] = field(default_factory=dict)
    positional: tuple[Any, ...] = ()
    dtype: torch.dtype = FLOAT
    autocast: bool = False
    self_attention: bool = False


def first(*args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return constructor arguments with ``batch_first``."""
    return (E, H, *args), {"batch_first": True, **kwargs}


def causal(dtype: torch.dtype = BOOL) -> Tensor:
    mask = torch.ones(N, M, dtype=BOOL).triu(1)
    return mask if dtype is BOOL else torch.zeros(N, M, dtype=dtype).masked_fill(mask, -torch.inf)


def padding(dtype: torch.dtype = BOOL, *, batch: int = B, keys: int = M) -> Tensor:
    mask = torch.arange(keys).expand(batch, keys) >= 4
    return mask if dtype is BOOL else torch.zeros(batch, keys, dtype=dtype).masked_fill(mask, -torch.inf)


SELF: Any = {"tokens": ((B, N, E),) * 3, "self_attention": True}
ONE: Any = {"tokens": ((N, E), (M, E), (M, E))}
CASES = [
    # constructors
    ParityCase("plain", first()),
    ParityCase("tokens first", ((E, H), {}), ((N, B, E), (M, B, E), (M, B, E))),
    ParityCase("self-attention", first(), **SELF),
    ParityCase("every constructor argument by position", ((E, H, 0.1, True, True, True, 4, 6, True, "cpu", FLOAT), {}),
               ((B, N, E), (B, M, 4), (B, M, 6))),
    ParityCase("no bias", first(bias=False)),
    ParityCase("kdim and vdim", first(kdim=4, vdim=6), ((B, N, E), (B, M, 4), (B, M, 6))),
    ParityCase("add_bias_kv", first(add_bias_kv=True)),
    ParityCase("add_zero_attn", first(add_zero_attn=True)),
    ParityCase("both, with masks", first(add_bias_kv=True, add_zero_attn=True),
               call={"attn_mask": causal(), "key_padding_mask": padding()}),
    ParityCase("one head", ((E, 1), {"batch_first": True})),
    ParityCase("embed_dim not a multiple", ((10, 3), {})),
    ParityCase("no heads", ((E, 0), {})),
    ParityCase("negative width", ((-E, H), {})),
    ParityCase("unknown argument", ((E, H), {"heads": 2})),
    # dtypes
    ParityCase("float64", first(dtype=DOUBLE), dtype=DOUBLE),
    ParityCase("bfloat16", first(dtype=HALF), dtype=HALF),
    ParityCase("bfloat16 without weights", first(dtype=HALF), dtype=HALF, call={"need_weights": False}),
    ParityCase("autocast", first(), autocast=True),
    ParityCase("autocast without weights", first(), autocast=True, call={"need_weights": False}),
    ParityCase("tokens in another dtype", first(), dtype=DOUBLE),
    ParityCase("integer tokens", first(), dtype=INT),
    # weights
    ParityCase("no weights", first(), call={"need_weights": False}),
    ParityCase("weights of each head", first(), call={"average_attn_weights": False}),
    ParityCase("dropout with weights", first(0.5)),
    ParityCase("dropout without weights", first(0.5), call={"need_weights": False}),
    ParityCase("dropout of everything", first(1.0)),
    ParityCase("every argument of forward by position", first(),
               positional=(padding(), True, causal(), False, True)),
    # one sequence
    ParityCase("one sequence", **ONE),
    ParityCase("one sequence, padding", **ONE, call={"key_padding_mask": padding()[0]}),
    ParityCase("one sequence, mask of each head", **ONE, call={"attn_mask": causal().expand(H, N, M)}),
    ParityCase("one sequence, padding of a batch", **ONE, call={"key_padding_mask": padding()}),
    ParityCase("one sequence, mask of three heads", **ONE, call={"attn_mask": causal().expand(3, N, M)}),
    ParityCase("a batch and one sequence", first(), ((B, N, E), (M, E), (M, E))),
    ParityCase("four axes", first(), ((B, 2, N, E), (B, 2, M, E), (B, 2, M, E))),
    # masks
    ParityCase("boolean mask", first(), call={"attn_mask": causal()}),
    ParityCase("float mask", first(), call={"attn_mask": causal(FLOAT)}),
    ParityCase("mask of each head", first(), call={"attn_mask": causal().expand(B * H, N, M)}),
    ParityCase("boolean padding", first(), call={"key_padding_mask": padding()}),
    ParityCase("float padding", first(), call={"key_padding_mask": padding(FLOAT)}),
    ParityCase("two boolean masks", first(), call={"attn_mask": causal(), "key_padding_mask": padding()}),
    ParityCase("two kinds of mask", first(), call={"attn_mask": causal(FLOAT), "key_padding_mask": padding()}),
    ParityCase("integer mask", first(), call={"attn_mask": causal().long()}),
    ParityCase("integer padding", first(), call={"key_padding_mask": padding().long()}),
    ParityCase("byte padding", first(), call={"key_padding_mask": padding().byte()}),
    ParityCase("mask of the wrong length", first(), call={"attn_mask": causal()[:, :-1]}),
    ParityCase("mask with a batch axis only", first(), call={"attn_mask": causal().expand(B, N, M)}),
    ParityCase("mask with four axes", first(), call={"attn_mask": causal().expand(B, H, N, M)}),
    ParityCase("mask with one axis", first(), call={"attn_mask": causal()[0]}),
    ParityCase("mask with one row", first(), call={"attn_mask": causal()[:1]}),
    ParityCase("padding of the wrong length", first(), call={"key_padding_mask": padding(keys=M - 1)}),
    ParityCase("padding of the wrong batch", first(), call={"key_padding_mask": padding(batch=B + 1)}),
    ParityCase("padding of one sequence for a batch", first(), call={"key_padding_mask": padding(batch=1)}),
    ParityCase("padding with one axis", first(), call={"key_padding_mask": padding()[0]}),
    ParityCase("float64 mask", first(), call={"attn_mask": causal(DOUBLE)}),
    ParityCase("float64 mask without weights", first(), call={"attn_mask": causal(DOUBLE), "need_weights": False}),
    ParityCase("bfloat16 mask without weights", first(), call={"attn_mask": causal(HALF), "need_weights": False}),
    ParityCase("float32 mask for float64", first(dtype=DOUBLE), dtype=DOUBLE, call={"attn_mask": causal(FLOAT)}),
    ParityCase("float32 mask for float64 without weights", first(dtype=DOUBLE), dtype=DOUBLE,
               call={"attn_mask": causal(FLOAT), "need_weights": False}),
    ParityCase("float64 padding", first(), call={"key_padding_mask": padding(DOUBLE)}),
    ParityCase("float64 mask and boolean padding", first(),
               call={"attn_mask": causal(DOUBLE), "key_padding_mask": padding()}),
    ParityCase("float32 mask and boolean padding for float64", first(dtype=DOUBLE), dtype=DOUBLE,
               call={"attn_mask": causal(FLOAT), "key_padding_mask": padding()}),
    ParityCase("float mask and autocast", first(), autocast=True, call={"attn_mask": causal(FLOAT)}),
    ParityCase("float64 mask and autocast", first(), autocast=True, call={"attn_mask": causal(DOUBLE)}),
    # the hint is_causal
    ParityCase("hint and mask", first(), call={"attn_mask": causal(), "is_causal": True}),
    ParityCase("hint and mask without weights", first(),
               call={"attn_mask": causal(), "is_causal": True, "need_weights": False}),
    ParityCase("hint without mask", first(), call={"is_causal": True}),
    ParityCase("hint without mask and weights", first(), call={"is_causal": True, "need_weights": False}),
    ParityCase("hint and a mask of the wrong shape", first(),
               call={"attn_mask": causal()[:2], "is_causal": True, "need_weights": False}),
    # tokens
    ParityCase("query of another width", first(), ((B, N, E + 1), (B, M, E), (B, M, E))),
    ParityCase("key of another width", first(), ((B, N, E), (B, M, E + 1), (B, M, E))),
    ParityCase("key and value of another width", first(), ((B, N, E), (B, M, E + 1), (B, M, E + 1))),
    ParityCase("value of another length", first(), ((B, N, E), (B, M, E), (B, M + 1, E))),
    ParityCase("key of another batch", first(), ((B, N, E), (B + 1, M, E), (B + 1, M, E))),
    ParityCase("value of another batch", first(kdim=4), ((B, N, E), (B, M, 4), (B + 1, M, E))),
    ParityCase("no queries", first(), ((B, 0, E), (B, M, E), (B, M, E))),
    ParityCase("no keys", first(), ((B, N, E), (B, 0, E), (B, 0, E))),
    ParityCase("no sequences", first(), ((0, N, E), (0, M, E), (0, M, E))),
]  # fmt: skip


def outcome(layer_class: Callable[..., nn.MultiheadAttention], case: ParityCase, *, training: bool) -> Any:
    """Return the shapes and dtypes of a call, or the type of its error."""
    try:
        layer = layer_class(*case.build[0], **case.build[1]).train(training)
        torch.manual_seed(0)
        q, k, v = ((3 * torch.randn(shape)).to(case.dtype) for shape in case.tokens)
        if case.self_attention:
            k = v = q
        with torch.set_grad_enabled(training), torch.autocast("cpu", torch.bfloat16, enabled=case.autocast):
            out, weights = layer(q, k, v, *case.positional, **case.call)
    except Exception as error:
        return type(error)
    return (out.shape, out.dtype), None if weights is None else (weights.shape, weights.dtype)


def parity_table() -> str:
    """Return the Markdown table of the documentation: every call and the answer of PyTorch's layer in training."""
    rows = [f"| {case.name} | {_answer_text(outcome(nn.MultiheadAttention, case, training=True))} |" for case in CASES]
    return "\n".join(["| call | answer of both layers |", "|---|---|", *rows])


def _answer_text(answer: Any) -> str:
    if isinstance(answer, type):
        return f"`{answer.__name__}`"
    return " and ".join(f"{tuple(shape)} {str(dtype)[6:]}" for shape, dtype in filter(None, answer))


if __name__ == "__main__":
    sys.stdout.write(f"{parity_table()}\n")
