"""FNA as the ``attn_layer`` of timm's vision transformers."""

import pytest
import torch
from torch.testing import assert_close

timm = pytest.importorskip("timm", reason="needs the extra `timm`")

from fna_lightning.attention import DotProduct, Fractional  # noqa: E402
from fna_lightning.integrations.timm import FractionalAttention, fractional  # noqa: E402
from fna_lightning.introspection.maps import attention_maps  # noqa: E402

SMALL = {"img_size": 16, "patch_size": 4, "embed_dim": 24, "depth": 2, "num_heads": 3, "num_classes": 5}


def vit(attn_layer: type | str | None = None) -> torch.nn.Module:
    torch.manual_seed(0)
    options = {} if attn_layer is None else {"attn_layer": attn_layer}
    return timm.models.VisionTransformer(**SMALL, **options).eval()


def image() -> torch.Tensor:
    return torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))


def test_with_dot_product_attention_it_equals_timms_layer() -> None:
    original, replaced = vit(), vit(FractionalAttention)
    replaced.load_state_dict(original.state_dict())
    for block in replaced.blocks:
        block.attn.core.attention = DotProduct()
    assert_close(replaced(image()), original(image()), rtol=0, atol=1e-5)


def test_weights_are_fractional() -> None:
    model = vit(fractional(alpha=1.6, kappa=2.0))
    maps = attention_maps(model, lambda: (model(image()), None)[1])
    assert list(maps) == ["blocks.0.attn", "blocks.1.attn"]
    block = model.blocks[0]
    tokens = block.norm1(model._pos_embed(model.patch_embed(image())))
    q, k, _ = block.attn.qkv(tokens).unflatten(-1, (3, 3, 8)).permute(2, 0, 3, 1, 4).unbind(0)
    assert_close(maps["blocks.0.attn"].weights, Fractional(1.6, 2.0).weights(q, k).detach())
    assert maps["blocks.0.attn"].is_self


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32])
def test_masks(dtype: torch.dtype) -> None:
    layer = FractionalAttention(24, 3)
    x = torch.randn(1, 6, 24, generator=torch.Generator().manual_seed(0))
    allowed = torch.ones(6, 6, dtype=torch.bool)
    allowed[:, 4:] = False
    mask = allowed if dtype == torch.bool else torch.zeros(6, 6).masked_fill(~allowed, -torch.inf)
    assert_close(layer(x, mask)[:, :4], layer(x[:, :4]))
    assert_close(layer(x, is_causal=True)[:, :3], layer(x[:, :3], is_causal=True))


def test_a_model_trains_with_learned_kappa() -> None:
    model = timm.create_model(
        "vit_tiny_patch16_224", img_size=32, depth=2, num_classes=4, attn_layer=fractional(learn=["alpha", "kappa"])
    )
    model(torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))).square().sum().backward()
    learned = model.blocks[1].attn.core.attention.learned
    assert learned.log_scale.shape == (3,)
    assert learned.log_scale.grad.abs().min() > 0
    with pytest.raises(ValueError, match=r"alpha must lie in \[1, 2\].*got 2.5"):
        fractional(alpha=2.5)
