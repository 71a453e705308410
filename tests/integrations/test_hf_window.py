"""Sliding windows of transformers models: computed without a dense mask, with the results of one."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

tf = pytest.importorskip("transformers", reason="needs the extra `hf`")

from transformers.masking_utils import AttentionMaskInterface, sdpa_mask  # noqa: E402

from fna_lightning.integrations import hf  # noqa: E402
from fna_lightning.integrations.hf import interface, window  # noqa: E402
from fna_lightning.integrations.hf.window import WindowMask, fna_mask  # noqa: E402
from fna_lightning.introspection.maps import attention_maps  # noqa: E402

WINDOW, LENGTH = 5, 23
SIZES = {"vocab_size": 60, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "pad_token_id": 0}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
LAYERS = {"layer_types": ["sliding_attention", "full_attention"]}


def mistral() -> tf.PreTrainedModel:
    return tf.MistralForCausalLM(tf.MistralConfig(**SIZES, **HEADS, sliding_window=WINDOW))


def qwen2() -> tf.PreTrainedModel:
    options = {name: size for name, size in HEADS.items() if name != "head_dim"}
    return tf.Qwen2ForCausalLM(
        tf.Qwen2Config(**SIZES, **options, **LAYERS, use_sliding_window=True, sliding_window=WINDOW)
    )


def gemma3() -> tf.PreTrainedModel:
    return tf.Gemma3ForCausalLM(tf.Gemma3TextConfig(**SIZES, **HEADS, **LAYERS, sliding_window=WINDOW))


def modernbert() -> tf.PreTrainedModel:
    options = {"num_attention_heads": 4, "local_attention": 2 * WINDOW, "global_attn_every_n_layers": 2}
    return tf.ModernBertForMaskedLM(tf.ModernBertConfig(**SIZES, **options, cls_token_id=1, sep_token_id=2))


every_model = pytest.mark.parametrize("make", [mistral, qwen2, gemma3, modernbert])


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several blocks of queries, of which the last is shorter."""
    monkeypatch.setattr(window, "MIN_BLOCK", 4)
    monkeypatch.setattr(window, "MAX_BLOCK", 4)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[WindowMask]:
    """The masks of the calls of ``windowed_attention``."""
    masks: list[WindowMask] = []
    original = window.windowed_attention

    def record(*args: Any, **kwargs: Any) -> Tensor:
        masks.append(args[4])
        return original(*args, **kwargs)

    monkeypatch.setattr(interface, "windowed_attention", record)
    return masks


def enabled(make: Callable[[], tf.PreTrainedModel]) -> tf.PreTrainedModel:
    torch.manual_seed(0)
    model = make().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.normal_(std=0.25)
    return hf.enable(model, 1.2, 1.5)


def batch(side: str | None = None) -> dict[str, Tensor]:
    ids = torch.randint(3, 60, (2, LENGTH), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    if side is not None:
        mask[1, :7] = 0
        mask = mask if side == "left" else mask.flip(-1)
    return {"input_ids": ids, "attention_mask": mask}


def with_dense_masks(monkeypatch: pytest.MonkeyPatch, compute: Callable[[], Any]) -> Any:
    with monkeypatch.context() as patch:
        patch.setitem(AttentionMaskInterface._global_mapping, "fna", sdpa_mask)
        return compute()


@every_model
@pytest.mark.parametrize("side", [None, "left", "right"])
def test_a_window_equals_the_dense_mask(
    make: Callable, side: str | None, calls: list[WindowMask], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, inputs = enabled(make), batch(side)
    tokens = inputs["attention_mask"].bool()

    def run() -> tuple[Tensor, Tensor]:
        model.zero_grad()
        logits = model(**inputs).logits[tokens]
        logits.square().mean().backward()
        grads = [parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None]
        return logits.detach(), torch.cat(grads)

    expected = with_dense_masks(monkeypatch, run)
    assert not calls
    actual = run()
    assert len(calls) == (2 if make is mistral else 1)
    assert_close(actual, expected, rtol=1e-4, atol=1e-5)
    # Without the window, the output is another one.
    model.config.sliding_window = 10 * LENGTH
    if make is not modernbert:
        assert (model(**inputs).logits[tokens] - expected[0]).abs().max() > 1e-3


@pytest.mark.parametrize("make", [mistral, gemma3])
def test_prefill_in_two_parts_equals_the_whole(make: Callable, calls: list[WindowMask]) -> None:
    model, inputs = enabled(make), batch()
    with torch.no_grad():
        expected = model(**inputs).logits
        cache = tf.DynamicCache(config=model.config)
        first = model(inputs["input_ids"][:, :10], past_key_values=cache, use_cache=True).logits
        calls.clear()
        second = model(inputs["input_ids"][:, 10:], past_key_values=cache, use_cache=True).logits
    assert calls
    assert calls[0].offset > 0
    assert_close(torch.cat([first, second], dim=1), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_generation_equals_generation_with_dense_masks(cache: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, inputs = enabled(mistral), batch("left")
    options = {"max_new_tokens": 6, "min_new_tokens": 6, "do_sample": False, "cache_implementation": cache}
    options |= {"disable_compile": True}
    expected = with_dense_masks(monkeypatch, lambda: model.generate(**inputs, **options))
    assert model.generate(**inputs, **options).equal(expected)


def test_weights_and_maps_of_a_windowed_layer(calls: list[WindowMask]) -> None:
    model, inputs = enabled(mistral), batch("left")
    maps = attention_maps(model, lambda: (model(**inputs), None)[1])
    with torch.no_grad():
        attentions = model(**inputs, output_attentions=True).attentions
    assert not calls
    for weights, layer_map in zip(attentions, maps.values(), strict=True):
        assert_close(weights, layer_map.weights)
        assert weights.tril(-WINDOW).eq(0).all()
        assert_close(weights[0].sum(-1), torch.ones(4, LENGTH))


CONFIG = tf.MistralConfig(**SIZES, **HEADS, sliding_window=WINDOW)


def test_the_mask_acts_as_its_boolean_matrix() -> None:
    options = {"batch_size": 2, "q_length": 9, "kv_length": 12, "q_offset": 3, "local_size": WINDOW}
    mask_function = tf.masking_utils.sliding_window_causal_mask_function(WINDOW)
    padding = torch.arange(12) >= torch.tensor([[0], [4]])
    options |= {"mask_function": mask_function, "attention_mask": padding}
    mask = fna_mask(**options, config=CONFIG)
    expected = sdpa_mask(**options)
    assert isinstance(mask, WindowMask)
    assert mask.dense().equal(expected)
    assert mask[:, :, 2:4].equal(expected[:, :, 2:4])
    assert (mask.dtype, mask.ndim, mask.shape) == (torch.bool, 4, expected.shape)
    assert torch.where(mask, 1.0, 0.0).equal(expected.float())
    assert torch.logical_not(input=mask).equal(~expected)


@pytest.mark.parametrize(
    "change",
    [
        {"local_size": None},
        {"allow_is_causal_skip": False},
        {"config": tf.LlamaConfig(**SIZES)},
        {"q_length": 2},
        {"kv_length": WINDOW},
        {"q_offset": torch.tensor(3)},
    ],
)
def test_other_masks_are_those_of_sdpa(change: dict[str, Any]) -> None:
    options = {"batch_size": 1, "q_length": 9, "kv_length": 12, "q_offset": 3, "local_size": WINDOW}
    options |= {"allow_is_causal_skip": True, "config": CONFIG} | change
    options["mask_function"] = tf.masking_utils.sliding_window_causal_mask_function(WINDOW)
    mask, expected = fna_mask(**options), sdpa_mask(**options)
    assert mask is expected is None or mask.equal(expected)
