"""Whitened patches as the first layer of an image network."""

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from fna_lightning.nn import ConvTokens, PatchWhitening


@pytest.fixture
def images() -> torch.Tensor:
    """Return smooth color images: adjacent pixels and channels are correlated."""
    torch.manual_seed(0)
    noise = torch.randn(40, 3, 18, 18)
    return F.avg_pool2d(noise + noise.mean(1, keepdim=True), 3, 1) + 0.3


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("components", [5, 27])
def test_components_of_training_patches_are_uncorrelated_with_variance_one(images, stride, components) -> None:
    layer = PatchWhitening(3, 2 * components, stride)
    layer.fit(images)
    # Without the padding of ``whiten``, whose patches at the border are not training patches.
    outputs = F.conv2d(images, layer.weight, layer.bias, stride)
    values = outputs.transpose(0, 1).flatten(1).double()
    assert_close(values.mean(1), torch.zeros_like(values[:, 0]), atol=1e-4, rtol=0)
    assert_close(values.cov(correction=0), torch.eye(components).double(), atol=1e-3, rtol=0)


def test_outputs_are_both_signs_of_the_components(images) -> None:
    layer = PatchWhitening(3, 10, 2)
    layer.fit(images)
    positive, negative = layer(images).chunk(2, dim=1)
    assert_close(positive - negative, layer.whiten(images))
    assert min(positive.min(), negative.min()) == 0
    assert positive.shape == (40, 5, 8, 8)


def test_filters_are_saved_and_not_trained(images) -> None:
    tokens = ConvTokens(3, 8, widths=[12], strides=[2, 2], whiten=True)
    assert not any(name.startswith("blocks.0.") for name, _ in tokens.named_parameters())
    assert not tokens.blocks[0].fitted
    tokens.blocks[0].fit(images)
    restored = ConvTokens(3, 8, widths=[12], strides=[2, 2], whiten=True)
    restored.load_state_dict(tokens.state_dict())
    assert restored.blocks[0].fitted
    assert_close(restored.eval()(images[..., :16, :16]), tokens.eval()(images[..., :16, :16]), rtol=0, atol=0)


@pytest.mark.parametrize("outputs", [0, 7, 56])
def test_number_of_outputs(outputs) -> None:
    message = f"at most 27 components, got {outputs} outputs; choose an even number up to 54"
    with pytest.raises(ValueError, match=message):
        PatchWhitening(3, outputs)
