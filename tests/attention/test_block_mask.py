"""The block masks of FlexAttention: their blocks, what they allow, and the cache."""

import pytest
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, create_mask

from fna_lightning.attention.kernels import block_mask as module
from fna_lightning.attention.kernels.block_mask import BLOCK, CACHE_SIZE, block_mask
from fna_lightning.attention.masks import AttentionMask

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _empty_cache() -> None:
    module._cache.clear()


def padding(m: int, *lengths: int) -> Tensor:
    return (torch.arange(m) < torch.tensor(lengths)[:, None])[:, None, None, :]


def general(n: int, m: int) -> Tensor:
    mask = torch.rand(2, 3, n, m, generator=torch.Generator().manual_seed(0)) < 0.5
    mask[0, :, :BLOCK, :BLOCK] = False
    mask[1, 1, :BLOCK] = True
    return mask


MASKS = {
    "padding": (300, 300, AttentionMask(padding(300, 300, 129))),
    "no key": (140, 300, AttentionMask(padding(300, 1, 0))),
    "causal": (300, 300, AttentionMask(is_causal=True)),
    "causal, decoding": (5, 300, AttentionMask(is_causal=True, offset=295)),
    "causal, more keys": (130, 270, AttentionMask(is_causal=True, offset=3)),
    "padding, causal": (300, 300, AttentionMask(padding(300, 300, 129), is_causal=True)),
    "exclude self": (260, 260, AttentionMask(exclude_self=True)),
    "general": (150, 260, AttentionMask(general(150, 260))),
    "general, causal": (260, 260, AttentionMask(general(260, 260), is_causal=True, exclude_self=True)),
    "one matrix": (150, 260, AttentionMask(general(150, 260)[0, 0])),
    "one key": (3, 1, AttentionMask(torch.tensor([[[[True]]], [[[False]]]]))),
    "no axis": (3, 4, AttentionMask(torch.tensor(True))),
}


@pytest.mark.parametrize("name", MASKS)
def test_blocks_and_function_equal_those_of_the_matrix(name: str) -> None:
    n, m, mask = MASKS[name]
    result = block_mask(mask, (2, 3), n, m, CPU)
    assert isinstance(result, BlockMask)
    matrix = mask.matrix(n, m, CPU)
    assert matrix is not None
    matrix = matrix.expand(2, 3, n, m)
    assert torch.equal(create_mask(result.mask_mod, 2, 3, n, m, device="cpu"), matrix)
    exact = create_block_mask(lambda b, h, i, j: matrix[b, h, i, j], 2, 3, n, m, device="cpu")
    # A block with allowed keys must be there; one without costs time only. Full blocks skip the mask.
    visible = result.to_dense().expand_as(exact.to_dense())
    assert (visible >= exact.to_dense()).all()
    assert torch.equal(full_blocks(result).expand(2, 3, -1, -1), full_blocks(exact))
    if name != "general, causal":
        assert torch.equal(visible, exact.to_dense())


def full_blocks(mask: BlockMask) -> Tensor:
    assert mask.full_kv_num_blocks is not None
    assert mask.full_kv_indices is not None
    blocks = torch.zeros_like(mask.full_kv_indices)
    ranks = torch.arange(blocks.size(-1))
    return blocks.scatter_(-1, mask.full_kv_indices.long(), (ranks < mask.full_kv_num_blocks[..., None]).int())


def test_no_mask_has_no_blocks() -> None:
    assert block_mask(AttentionMask(), (2, 3), 5, 7, CPU) is None


def test_five_axes() -> None:
    mask = general(20, 30)[:, None].expand(2, 4, 3, 20, 30)
    result = block_mask(AttentionMask(mask), (2, 4, 3), 20, 30, CPU)
    assert torch.equal(create_mask(result.mask_mod, 8, 3, 20, 30, device="cpu"), mask.flatten(0, 1))


def test_one_block_mask_for_all_layers() -> None:
    row = torch.ones(2, 40, dtype=torch.bool)
    first = block_mask(AttentionMask(row[:, None, None, :]), (2, 3), 40, 40, CPU)
    # another view of the same memory
    assert block_mask(AttentionMask(row[:, None, None, :]), (2, 3), 40, 40, CPU) is first
    assert block_mask(AttentionMask(row[:, None, None, :], is_causal=True), (2, 3), 40, 40, CPU) is not first
    assert block_mask(AttentionMask(row.clone()[:, None, None, :]), (2, 3), 40, 40, CPU) is not first


def test_a_changed_mask_gets_a_new_block_mask() -> None:
    row = torch.ones(2, 40, dtype=torch.bool)
    mask = AttentionMask(row[:, None, None, :])
    first = block_mask(mask, (2, 3), 40, 40, CPU)
    row[0, 7:] = False
    second = block_mask(mask, (2, 3), 40, 40, CPU)
    assert second is not first
    assert first.full_kv_num_blocks.sum() + first.kv_num_blocks.sum() == 2
    assert torch.equal(create_mask(second.mask_mod, 2, 1, 40, 40, device="cpu")[:, 0, 0], row)


def test_memory_of_a_deleted_mask_is_not_mistaken_for_a_new_mask() -> None:
    for length in range(1, 30):
        mask = padding(40, length)
        result = block_mask(AttentionMask(mask), (1, 1), 40, 40, CPU)
        assert create_mask(result.mask_mod, 1, 1, 40, 40, device="cpu")[0, 0, 0].sum() == length
        del mask
    assert len(module._cache) == CACHE_SIZE


def test_inference_mode_does_not_fill_the_cache() -> None:
    with torch.inference_mode():
        block_mask(AttentionMask(padding(40, 3)), (1, 1), 40, 40, CPU)
        block_mask(AttentionMask(is_causal=True), (1, 1), 40, 40, CPU)
    assert not module._cache
