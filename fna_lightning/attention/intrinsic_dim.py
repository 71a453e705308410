"""The intrinsic dimension of the keys, estimated from the distances to their nearest neighbors.

Maximum likelihood estimate of Levina and Bickel (2004), with the inverse estimates of the points averaged as MacKay and
Ghahramani (2005) recommend: with T_j the distance of a point to its j-th neighbor,

    1 / d_M = mean over the points and over j < k of log(T_k / T_j)
"""

import torch
from torch import Tensor, nn

from fna_lightning.attention.distance import distance_dtype, euclidean
from fna_lightning.attention.masks import AttentionMask

# The running estimate of a layer uses this many points of a set, sets of a batch and neighbors of a point. They are
# few, because it is updated in every training step; the average reduces the noise.
MAX_POINTS, MAX_SETS, NEIGHBORS = 32, 2, 6
MOMENTUM = 0.1


def estimate_intrinsic_dim(points: Tensor, mask: Tensor | None = None, *, neighbors: int = 10) -> Tensor:
    """Return the intrinsic dimension of each set of points; NaN for fewer than three distinct points.

    The estimate is deterministic and has no gradient. Equal points count as one neighbor. Near the border of a set and
    in more than about ten dimensions it is too small unless there are very many points.

    Args:
        points: (..., n, d) sets of points.
        mask: boolean, broadcastable to (..., n), False where a point does not count; None counts all.
        neighbors: the number k of neighbors of a point, at least 2; n - 1 if there are fewer.

    Example:
        >>> import torch
        >>> points = torch.rand(500, 2, generator=torch.Generator().manual_seed(0)) @ torch.ones(2, 8).tril()
        >>> round(estimate_intrinsic_dim(points).item())
        2
    """
    if neighbors < 2:
        raise ValueError(f"neighbors must be at least 2, got {neighbors}")
    sums, counts = _log_ratios(points, mask, neighbors)
    return (counts / sums).masked_fill(counts == 0, torch.nan).clamp(max=points.size(-1))


@torch.no_grad()
def _log_ratios(points: Tensor, mask: Tensor | None, neighbors: int) -> tuple[Tensor, Tensor]:
    """Return the sum of log(T_k / T_j) of each set of points, and the number of its terms."""
    points = points.detach().to(distance_dtype(points))
    neighbors = min(neighbors, points.size(-2) - 1)
    if neighbors < 2:
        return points.new_zeros(points.shape[:-2]), points.new_zeros(points.shape[:-2])
    distances = euclidean(points, points)
    # Not a neighbor: the point itself, an equal point, and a point that is not finite.
    usable = (distances > 0.0) & (distances < torch.inf)
    if mask is not None:
        usable = usable & mask[..., None, :] & mask[..., :, None]
    nearest = torch.where(usable, distances, torch.inf).topk(neighbors, dim=-1, largest=False).values.log()
    present = nearest < torch.inf
    farthest = torch.where(present, nearest, -torch.inf).amax(dim=-1, keepdim=True)
    sums = torch.where(present, farthest - nearest, 0.0).sum(dim=(-2, -1))
    return sums, (present.sum(dim=-1) - 1).clamp(min=0).sum(dim=-1).to(sums.dtype)


class RunningIntrinsicDim(nn.Module):
    """Running average of the estimated intrinsic dimension of the keys, one value per head.

    ``value`` is a buffer, so it is saved in the ``state_dict`` and ``DistributedDataParallel`` copies it from the first
    process to the others. It is 0 before the first estimate.

    Args:
        num_heads: number of values; one value is the estimate over all heads.
    """

    value: Tensor

    def __init__(self, num_heads: int = 1) -> None:
        super().__init__()
        self.register_buffer("value", torch.zeros(num_heads))

    @torch.no_grad()
    def update(self, k: Tensor, mask: AttentionMask) -> None:
        """Add the estimate from (..., H, m, d) keys to the average; keys without three distinct points change nothing.

        Evenly spaced sequences of the batch and keys of a sequence are used, and only keys that a query may attend to.
        """
        allowed = _allowed_keys(mask, k)
        keys = k.detach()[None] if k.dim() == 2 else k.detach()
        keys = keys.flatten(0, -4) if keys.dim() > 4 else keys.expand(*[1] * (4 - keys.dim()), *keys.shape)
        sets = _evenly_spaced(keys.size(0), MAX_SETS, k.device)
        points = _evenly_spaced(keys.size(-2), MAX_POINTS, k.device)
        keys = keys[sets][..., points, :]
        if allowed is not None:
            allowed = allowed.reshape(-1, *keys.shape[1:2], k.size(-2))[sets][..., points]
        sums, counts = (x.sum(dim=0) for x in _log_ratios(keys, allowed, NEIGHBORS))
        if self.value.numel() == 1:
            sums, counts = sums.sum(dim=0, keepdim=True), counts.sum(dim=0, keepdim=True)
        estimate = (counts / sums).clamp(max=k.size(-1)).to(self.value.dtype)
        average = torch.where(self.value > 0.0, self.value.lerp(estimate, MOMENTUM), estimate)
        # In place, because DistributedDataParallel keeps a reference to the buffer.
        self.value.copy_(torch.where(counts > 0, average, self.value))

    def forward(self, head_dim: int) -> Tensor:
        """Return the dimension of each head; the head width before the first estimate."""
        return torch.where(self.value > 0.0, self.value, float(head_dim))


def _allowed_keys(mask: AttentionMask, k: Tensor) -> Tensor | None:
    """Return which keys a query may attend to as (..., H, m), or None if it may attend to all of them."""
    if mask.allowed is None:
        return None
    allowed = mask.allowed.any(dim=-2) if mask.allowed.dim() > 1 else mask.allowed
    return allowed.expand(*k.shape[:-1])


def _evenly_spaced(size: int, count: int, device: torch.device) -> Tensor | slice:
    if size <= count:
        return slice(None)
    return torch.linspace(0, size - 1, count, device=device).round().long()
