"""``torch.vmap`` of the operator ``radial_attention``: the mapped axis becomes a part of the batch or of the heads.

The samples go into the batch axis. If kappa or the exponent differ between the samples (ensembles), or a gradient of
them is wanted for each sample, the samples go into the heads axis, because the operator has one value per head.

Dropout depends on the seed and on the position. With ``randomness="different"`` the seed is mapped, and one seed gives
all samples a pattern of their own. With ``randomness="same"`` it is not, and the samples are computed one by one.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

Dims = Sequence[int | None]
# Positions of the arguments of the operator; those of its derivative are shifted by one, behind the gradient.
MASK, BIAS, KAPPA, EXPONENT, SEED = 3, 4, 5, 6, 7
INPUTS = 8


def map_forward(
    function: Callable[..., Any], batch_size: int, in_dims: Dims, inputs: Sequence[Any]
) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
    """Return output and statistics of all samples, and their mapped axes; ``function`` is the operator."""
    dropout = inputs[INPUTS + 5]
    if dropout and in_dims[SEED] is None:
        return _one_by_one(function, batch_size, in_dims, inputs), (0, 0)
    # With dropout always by heads: the backward pass must have the same positions.
    fold = _Fold(batch_size, _by_heads(in_dims) or bool(dropout))
    folded = fold.inputs(in_dims, inputs)
    out, stats = function(*folded, *inputs[INPUTS:])
    return (fold.restore(out), fold.restore(stats)), (0, 0)


def map_backward(
    function: Callable[..., Any], batch_size: int, in_dims: Dims, inputs: Sequence[Any]
) -> tuple[tuple[Tensor, ...], tuple[int | None, ...]]:
    """Return the gradients of all samples, and their mapped axes; ``function`` is the derivative of the operator."""
    *settings, learn_kappa, learn_exponent, learn_bias = inputs[INPUTS + 3 :]
    dropout = settings[5]
    if dropout and in_dims[1 + SEED] is None:
        return _one_by_one(function, batch_size, in_dims, inputs), (0,) * 6
    by_heads = _by_heads(in_dims[1:]) or bool(dropout) or learn_kappa or learn_exponent
    fold = _Fold(batch_size, by_heads)
    grad = fold.tokens(inputs[0], in_dims[0])
    folded = fold.inputs(in_dims[1:], inputs[1:], own_bias=learn_bias)
    results = [fold.tokens(inputs[index], in_dims[index]) for index in (INPUTS + 1, INPUTS + 2)]
    grads = function(grad, *folded, *results, *settings, learn_kappa, learn_exponent, learn_bias)
    dq, dk, dv, dbias, dkappa, dexponent = grads
    dims: list[int | None] = [0] * 6
    if learn_bias and inputs[1 + BIAS] is not None:
        dbias = fold.restore_bias(dbias, _sample_shape(inputs[1 + BIAS], in_dims[1 + BIAS]))
    else:
        dims[3] = None
    if by_heads:
        dkappa, dexponent = dkappa.unflatten(0, (batch_size, -1)), dexponent.unflatten(0, (batch_size, -1))
    else:
        dims[4] = dims[5] = None
    return (*(fold.restore(x) for x in (dq, dk, dv)), dbias, dkappa, dexponent), tuple(dims)


def _by_heads(in_dims: Dims) -> bool:
    return in_dims[KAPPA] is not None or in_dims[EXPONENT] is not None


def _sample_shape(x: Tensor, dim: int | None) -> list[int]:
    return [size for axis, size in enumerate(x.shape) if dim is None or axis != dim % x.dim()]


def _one_by_one(function: Callable[..., Any], batch_size: int, in_dims: Dims, inputs: Sequence[Any]) -> Any:
    samples = [
        function(*(x if dim is None else x.select(dim, index) for x, dim in zip(inputs, in_dims, strict=True)))
        for index in range(batch_size)
    ]
    return tuple(torch.stack(results) for results in zip(*samples, strict=True))


class _Fold:
    """Moves the mapped axis of the operator's arguments into the batch or the heads axis, and back.

    Args:
        batch_size: number of samples.
        by_heads: whether the samples go into the heads axis.
    """

    def __init__(self, batch_size: int, by_heads: bool) -> None:
        self.batch_size, self.by_heads = batch_size, by_heads

    def inputs(self, in_dims: Dims, inputs: Sequence[Any], own_bias: bool = False) -> list[Any]:
        """Return the eight tensors; with ``own_bias`` every sample gets a bias of its own, for its gradient."""
        q, k, v, mask, bias, kappa, exponent, seed = inputs[:INPUTS]
        q, k, v = (self.tokens(x, dim) for x, dim in zip((q, k, v), in_dims, strict=False))
        shape = self.sample_sizes(q)
        if mask is not None:
            mask = self.matrix(mask, in_dims[MASK], shape, own=False)
        if bias is not None:
            bias = self.matrix(bias, in_dims[BIAS], shape, own=own_bias)
        if self.by_heads:
            kappa, exponent = (
                self.leading(x, dim).flatten() for x, dim in ((kappa, in_dims[KAPPA]), (exponent, in_dims[EXPONENT]))
            )
        if seed is not None and in_dims[SEED] is not None:
            seed = seed.select(in_dims[SEED], 0)
        return [q, k, v, mask, bias, kappa, exponent, seed]

    def sample_sizes(self, q: Tensor) -> tuple[int, int]:
        """Return the batch size and the number of heads of one sample, from the folded queries."""
        b, h = q.shape[:2]
        return (b, h // self.batch_size) if self.by_heads else (b // self.batch_size, h)

    def leading(self, x: Tensor, dim: int | None) -> Tensor:
        """Return the tensor with the mapped axis in front."""
        return x.expand(self.batch_size, *x.shape) if dim is None else x.movedim(dim, 0)

    def tokens(self, x: Tensor, dim: int | None) -> Tensor:
        """Return a (batch, head, ...) tensor of each sample as one tensor of the operator."""
        x = self.leading(x, dim)
        return x.transpose(0, 1).flatten(1, 2) if self.by_heads else x.flatten(0, 1)

    def restore(self, x: Tensor) -> Tensor:
        """Return the samples of a folded tensor along a new first axis."""
        if self.by_heads:
            return x.unflatten(1, (self.batch_size, -1)).transpose(0, 1)
        return x.unflatten(0, (self.batch_size, -1))

    def matrix(self, x: Tensor, dim: int | None, sizes: tuple[int, int], *, own: bool) -> Tensor:
        """Return a mask or bias; one that is the same for all samples stays as it is unless ``own``."""
        shape = _sample_shape(x, dim)
        shape = [1] * (4 - len(shape)) + shape
        axis = 1 if self.by_heads else 0
        if dim is None and shape[axis] == 1 and not own:
            return x
        x = self.leading(x, dim).reshape(self.batch_size, *shape)
        shape[axis] = sizes[axis]
        return self.tokens(x.expand(self.batch_size, *shape), 0)

    def restore_bias(self, dbias: Tensor, shape: list[int]) -> Tensor:
        """Return the gradients of a bias that ``matrix`` has folded: (samples, *shape)."""
        dbias = self.restore(dbias)
        axis = 1 if self.by_heads else 0
        full = [1] * (4 - len(shape)) + shape
        if full[axis] == 1:
            dbias = dbias.sum(dim=1 + axis, keepdim=True)
        return dbias.reshape(self.batch_size, *shape)
