"""FNA in built timm models: ``enable``, layer by layer and model by model."""

import copy
import pickle
import threading
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

timm = pytest.importorskip("timm", reason="needs the extra `timm`")

from surveys.timm_models import survey  # noqa: E402

from fna_lightning.attention import DotProduct, ExternalAttention, Fractional  # noqa: E402
from fna_lightning.integrations.timm import calibrated_kappa, disable, enable, inspect_model  # noqa: E402
from fna_lightning.integrations.timm.layers import head_shape  # noqa: E402
from fna_lightning.introspection.maps import attention_maps  # noqa: E402

from helpers.gaussian_formula import gaussian_output, matched_kappa  # noqa: E402
from helpers.timm_models import FAMILIES, build  # noqa: E402


def images(size: int, count: int = 2) -> Tensor:
    return torch.randn(count, 3, size, size, generator=torch.Generator().manual_seed(0))


def vit(**options: Any) -> nn.Module:
    torch.manual_seed(0)
    sizes = {"img_size": 16, "patch_size": 4, "embed_dim": 24, "depth": 2, "num_heads": 3, "num_classes": 5}
    return timm.models.VisionTransformer(**sizes, **options).eval()


def cores(model: nn.Module) -> list[ExternalAttention]:
    return [module for module in model.modules() if isinstance(module, ExternalAttention)]


def first(output: Any) -> Tensor:
    """Return the tokens of an output; some layers also return the size of the map."""
    return output[0] if isinstance(output, tuple) else output


def recorded_calls(model: nn.Module, size: int, names: list[str]) -> dict[str, tuple[Any, Any, Tensor]]:
    """Return the arguments and outputs of the first call of some layers."""
    calls: dict[str, tuple[Any, Any, Tensor]] = {}

    def record(name: str, _: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        calls.setdefault(name, (args, kwargs, first(output)))

    handles = [
        model.get_submodule(name).register_forward_hook(partial(record, name), with_kwargs=True) for name in names
    ]
    model(images(size, 1).double())
    for handle in handles:
        handle.remove()
    return calls


@pytest.mark.parametrize("name", FAMILIES)
@torch.no_grad()
def test_a_layer_is_its_own_with_dot_products_and_the_gaussian_formula_with_alpha_2(name: str) -> None:
    torch.manual_seed(0)
    model, size = build(name)
    model.double()
    for parameter in model.parameters():
        # Many biases and scales are initialized with 0, where an error would not show.
        parameter.add_(0.1 * torch.randn_like(parameter))
    layers = inspect_model(model).replaceable
    kinds = {(type(layer), head_shape(layer), layer.extra_repr()): layer_name for layer_name, layer in layers.items()}
    calls = recorded_calls(model, size, list(kinds.values()))
    assert calls.keys() == set(kinds.values())
    gaussian = {key: first(gaussian_output(layers[key], *call[:2])) for key, call in calls.items()}
    enable(model, 2.0, {key: [matched_kappa(head_shape(layer)[1])] for key, layer in layers.items()}, partial=True)
    changed = False
    for key, (args, kwargs, original) in calls.items():
        layer = layers[key]
        assert_close(first(layer(*args, **kwargs)), gaussian[key], rtol=1e-9, atol=1e-9)
        layer.fna.attention = DotProduct()
        assert_close(first(layer(*args, **kwargs)), original, rtol=1e-9, atol=1e-9)
        changed |= not torch.allclose(gaussian[key], original, rtol=1e-3, atol=1e-3)
    # The Gaussian of normalized queries and keys is the softmax of their cosines.
    assert changed or name.startswith("swinv2")


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("swin_tiny_patch4_window7_224", "replaced"),
        ("swinv2_tiny_window8_256", "replaced"),
        ("swin_s3_tiny_224", "replaced"),
        ("vit_base_patch16_xp_224", "replaced"),
        ("vit_pwee_patch16_reg1_gap_256", "replaced"),
        ("efficientformer_l1", "replaced"),
        ("csatv2", "partly"),
        ("cait_xxs24_224", "partly"),
        ("davit_tiny", "partly"),
        ("mobilevitv2_050", "refused"),
        ("efficientvit_b0", "refused"),
        ("resnet18", "no attention"),
        ("resnest14d", "no attention"),
        ("resnet50_clip", "replaced"),
        ("vit_tiny_patch16_dinov3_qkvb", "replaced"),
    ],
)
def test_no_attention_is_left_unnoticed(name: str, status: str) -> None:
    row = survey(name)
    assert row.unnoticed == ""
    assert row.status == status
    if status == "replaced":
        assert (row.softmaxes_before, row.softmaxes_after) == (row.replaced, 0)


def test_weights_are_fractional() -> None:
    model = enable(vit(), 1.6, 2.0)
    maps = attention_maps(model, lambda: (model(images(16)), None)[1])
    assert list(maps) == ["blocks.0.attn", "blocks.1.attn"]
    block = model.blocks[0]
    tokens = block.norm1(model._pos_embed(model.patch_embed(images(16))))
    q, k, _ = block.attn.qkv(tokens).unflatten(-1, (3, 3, 8)).permute(2, 0, 3, 1, 4).unbind(0)
    assert_close(maps["blocks.0.attn"].weights, Fractional(1.6, 2.0).weights(q, k).detach())
    assert maps["blocks.0.attn"].is_self


def test_maps_of_windows_have_the_shape_of_a_layer() -> None:
    model, size = build("hiera_tiny_224")
    enable(model)
    maps = attention_maps(model, lambda: (model(images(size)), None)[1])
    assert [layer.weights.dim() for layer in maps.values()] == [4] * 4
    assert all(layer.weights.sum(dim=-1).allclose(torch.ones(())) for layer in maps.values())


def test_masks_of_a_layer() -> None:
    layer = enable(vit(), 1.2, 2.0).blocks[0].attn
    x = torch.randn(1, 6, 24, generator=torch.Generator().manual_seed(0))
    allowed = torch.ones(6, 6, dtype=torch.bool)
    allowed[:, 4:] = False
    added = torch.zeros(6, 6).masked_fill(~allowed, -torch.inf)
    for mask in (allowed, added):
        assert_close(layer(x, attn_mask=mask)[:, :4], layer(x[:, :4]))
    assert_close(layer(x, is_causal=True)[:, :3], layer(x[:, :3], is_causal=True))


def test_attention_dropout_is_kept() -> None:
    model = enable(vit(attn_drop_rate=0.5))
    x = images(16)
    assert_close(model(x), model(x))
    model.train()
    assert not torch.allclose(model(x), model(x))


def test_an_error_names_what_cannot_be_replaced() -> None:
    model, _ = build("cait_xxs24_224")
    with pytest.raises(
        ValueError,
        match=r"FNA can replace 2 of the 3 attention layers of Cait; pass partial=True .*"
        r"blocks\.0\.attn: TalkingHeadAttn mixes the logits of different heads",
    ):
        enable(model)
    assert not cores(model)
    enable(model, partial=True)
    assert len(cores(model)) == 2
    with pytest.raises(ValueError, match=r"cannot replace any attention layer of ByobNet: .*: LambdaLayer is linear"):
        enable(timm.create_model("lambda_resnet26t"), partial=True)


def test_a_model_without_attention_is_an_error() -> None:
    with pytest.raises(ValueError, match="ResNet has no attention layer"):
        enable(timm.create_model("resnet18"))
    with pytest.raises(ValueError, match=r"alpha must lie in \[1, 2\].*got 2.5"):
        enable(vit(), alpha=2.5)
    with pytest.raises(ValueError, match=r"kappa has no value for the attention layer 'blocks.1.attn'"):
        enable(vit(), kappa={"blocks.0.attn": [1.0]})


def test_an_unknown_softmax_is_refused() -> None:
    class Mixer(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.softmax(dim=-1)

    model = vit()
    model.blocks[0].attn = Mixer()
    with pytest.raises(ValueError, match=r"blocks\.0\.attn: Mixer computes a softmax in code that this version"):
        enable(model)


def test_a_layer_that_does_not_call_the_function_raises() -> None:
    model = enable(vit())
    model.blocks[1].attn.fused_attn = False
    with pytest.raises(RuntimeError, match="Attention called scaled_dot_product_attention 0 times"):
        model(images(16))


def test_state_and_copies() -> None:
    plain = vit()
    model = enable(vit(), 1.6)
    assert list(model.state_dict()) == list(plain.state_dict())
    model.load_state_dict(plain.state_dict())
    expected = model(images(16))
    for duplicate in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert_close(duplicate(images(16)), expected)
        assert isinstance(duplicate.blocks[0].attn, timm.layers.Attention)
        assert duplicate.blocks[0].attn.fna.attention.alpha == 1.6
    assert_close(disable(model)(images(16)), plain(images(16)))
    assert type(model.blocks[0].attn) is timm.layers.Attention


def test_learned_alpha_and_kappa() -> None:
    model = enable(vit(), learn=["alpha", "kappa"]).train()
    model(images(16)).square().sum().backward()
    learned = model.blocks[1].attn.fna.attention.learned
    assert learned.log_scale.shape == (3,)
    assert learned.log_scale.grad.abs().min() > 0
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_calibration_gives_the_entropy_of_the_models_own_attention() -> None:
    model = vit()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    plain = model(images(16))
    kappas = calibrated_kappa(model, images(16), 1.2)
    assert [len(numbers) for numbers in kappas.values()] == [3, 3]
    assert_close(model(images(16)), plain)

    def entropy() -> Tensor:
        maps = attention_maps(model, lambda: (model(images(16)), None)[1])
        return torch.special.entr(maps["blocks.0.attn"].weights).sum(dim=-1).mean(dim=(0, 2))

    enable(model, kappa="auto", batch=images(16))
    calibrated = entropy()
    for core in cores(model):
        core.attention = DotProduct()
    assert_close(calibrated, entropy(), rtol=1e-3, atol=1e-3)


def test_calibration_without_a_batch(caplog: pytest.LogCaptureFixture) -> None:
    kappas = [len(core.attention.kappa) for core in cores(enable(vit(), kappa="auto"))]
    assert kappas == [3, 3]
    assert "calibrated on random images" in caplog.text
    # The size of these images is not an attribute of the model.
    model, _ = build("levit_conv_128s")
    with pytest.raises(
        ValueError, match=r"LevitDistilled does not take random images of 224 x 224 pixels; pass batch="
    ):
        enable(model, kappa="auto")
    assert not cores(model)


def test_threads_do_not_share_the_interception() -> None:
    model, plain = enable(vit()), vit()
    inputs = [images(16) + offset for offset in range(8)]
    with torch.no_grad():
        expected = [(model(x), plain(x)) for x in inputs]
        outputs: dict[int, list[Tensor]] = {}

        def work(number: int) -> None:
            outputs[number] = [(model if number % 2 == 0 else plain)(x).clone() for x in inputs for _ in range(3)]

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for number, results in outputs.items():
        assert_close(results, [pair[number % 2] for pair in expected for _ in range(3)])


@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "tnt_s_patch16_224"])
@torch.no_grad()
def test_compile_and_export(name: str) -> None:
    model, size = build(name)
    expected = enable(model)(images(size))
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    assert_close(compiled(images(size)), expected)
    torch.compiler.reset()
    assert_close(torch.export.export(model, (images(size),)).module()(images(size)), expected)
