"""Vision Transformer and its parts."""

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from fna_lightning.attention import Attention, DotProduct, Fractional, OrthogonalProjection, Spherical, Uniform
from fna_lightning.nn import ConvTokens, Encoder, EncoderConfig, GridPositions, Patches, Pooling, ViT

ATTENTIONS = [Fractional(kappa="vision"), Fractional(2.0, "vision"), Spherical(), DotProduct(), Uniform()]


def paper_encoder(attention: Attention) -> Encoder:
    config = EncoderConfig(48, 6, 192, depth=4, pre_norm=True, activation="gelu", dropout=0.0)
    return config(attention)


@pytest.mark.parametrize("attention", ATTENTIONS, ids=repr)
def test_model_of_the_paper_has_119_thousand_parameters(attention) -> None:
    model = ViT(paper_encoder(attention), 10)
    layer = 4 * 48 * 48 + 48 + 2 * 48 * 192 + 192 + 48 + 4 * 48
    rest = (48 * 48 + 48) + 48 + 65 * 48 + 2 * 48 + (10 * 48 + 10)
    assert sum(p.numel() for p in model.parameters()) == 4 * layer + rest == 118_618
    assert model(torch.rand(2, 3, 32, 32)).shape == (2, 10)


def test_patches_equal_a_strided_convolution() -> None:
    torch.manual_seed(0)
    patches = Patches(3, 8, patch=4)
    images = torch.rand(2, 3, 8, 12)
    kernel = patches.map.weight.reshape(8, 3, 4, 4)
    assert_close(patches(images), F.conv2d(images, kernel, patches.map.bias, stride=4).flatten(2).mT)


def test_convolutional_tokens_follow_the_grid() -> None:
    tokens = ConvTokens(3, 16, widths=[8, 8], strides=[2, 1, 2]).eval()
    images = torch.zeros(1, 3, 32, 32)
    assert tokens(images).shape == (1, 64, 16)
    changed = images.clone()
    changed[..., 0, 31] = 1.0
    moved = (tokens(changed) != tokens(images)).any(-1).reshape(8, 8)
    assert moved[0, 7]
    assert not moved[2:].any()
    assert not moved[:, :5].any()
    assert ConvTokens(3, 16, widths=[8], strides=[2, 2], pool=True)(images).shape == (1, 64, 16)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Patches(3, 8, patch=5).grid(32),
            (
                "patches of 5 pixels do not tile an image of 32; choose a patch that divides 32, or an image size that "
                "is a multiple of 5, such as 30"
            ),
        ),
        (lambda: Patches(3, 8, patch=0), "patch must be at least 1 pixel, got 0"),
        (lambda: ConvTokens(3, 8, strides=[2, 2]), r"strides must be 3 positive numbers.*\[2, 2\]"),
        (
            lambda: ConvTokens(3, 8).grid(30),
            (
                "tokens of 4 pixels do not tile an image of 30; choose strides whose product divides 30, or an image "
                "size that is a multiple of 4, such as 32"
            ),
        ),
        (lambda: GridPositions("spiral", 2, 2, 8), "unknown positions 'spiral'; choose one of learned, sinusoidal"),
        (lambda: Pooling("attention"), "needs the width of a token; pass dim"),
        (lambda: ViT(paper_encoder(DotProduct()), 10)(torch.rand(1, 3, 16, 16)), "32 x 32 pixels, got 16 x 16"),
    ],
)
def test_invalid_arguments(make, message) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_sinusoidal_positions_distinguish_rows_and_columns() -> None:
    table = GridPositions("sinusoidal", 4, 6, 16, first=1)(torch.zeros(1, 25, 16))[0]
    assert table[0].eq(0).all()
    grid = table[1:].reshape(4, 6, 16)
    assert torch.pdist(grid.reshape(24, 16)).min() > 0.1
    assert_close(grid[2, :, :8], grid[2, :1, :8].expand(6, 8))
    assert_close(grid[:, 3, 8:], grid[:1, 3, 8:].expand(4, 8))


@pytest.mark.parametrize("pooling", ["mean", "max", "attention"])
def test_without_positions_the_order_of_patches_does_not_matter(pooling) -> None:
    torch.manual_seed(0)
    model = ViT(paper_encoder(Fractional(kappa="vision")), 10, positions="none", pooling=pooling).eval()
    image = torch.rand(1, 3, 32, 32)
    shifted = image.roll(8, -1)
    assert_close(model(shifted), model(image), atol=1e-5, rtol=1e-5)
    placed = ViT(paper_encoder(Fractional(kappa="vision")), 10, positions="learned", pooling=pooling).eval()
    assert (placed(shifted) - placed(image)).abs().max() > 1e-5


def test_attention_pooling_ignores_padding() -> None:
    torch.manual_seed(0)
    pool = Pooling("attention", 8)
    x = torch.randn(2, 5, 8)
    real = torch.tensor([[True, True, True, False, False], [False] * 5])
    assert_close(pool(x, real)[0], pool(x[:1, :3])[0])
    assert pool(x, real)[1].eq(0).all()


def test_orthogonal_projection() -> None:
    config = EncoderConfig(12, 2, projection=OrthogonalProjection, pre_norm=True)
    assert ViT(config(Fractional(kappa="vision")), 3, image_size=8)(torch.rand(2, 3, 8, 8)).shape == (2, 3)
