"""Switching transformers models between FNA and other attentions: saved, reloaded, refused."""

from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

tf = pytest.importorskip("transformers", reason="needs the extra `hf`")

from fna_lightning.attention import kernels  # noqa: E402
from fna_lightning.integrations import hf  # noqa: E402
from fna_lightning.integrations.hf.layers import interface_layers  # noqa: E402

from helpers.hf_models import MODELS, inputs, outputs, tiny  # noqa: E402

KAPPA = 1.5
DECODER_SIZES = {"vocab_size": 60, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
DECODER_SIZES |= {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "pad_token_id": 0}


@pytest.mark.parametrize("name", MODELS)
def test_another_attention_survives_save_and_reload(name: str, tmp_path: Path) -> None:
    batch = inputs(name)
    model = hf.enable(tiny(name), 1.4, "auto", batch=batch)
    fna = outputs(model, batch)
    model.set_attn_implementation("sdpa")
    sdpa = outputs(model, batch)
    assert (sdpa - fna).abs().max() > 1e-3
    model.save_pretrained(tmp_path)
    reloaded = type(model).from_pretrained(tmp_path).eval()
    assert reloaded.config._attn_implementation == "sdpa"
    assert_close(outputs(reloaded, batch), sdpa, rtol=0, atol=1e-6)
    # The settings are kept, so FNA is the same as before when it is set again.
    reloaded.set_attn_implementation("fna")
    assert_close(outputs(reloaded, batch), fna, rtol=0, atol=1e-6)
    assert type(model).from_pretrained(tmp_path, attn_implementation="fna").config.fna == model.config.fna


def test_the_attention_of_the_configuration_is_saved(tmp_path: Path) -> None:
    model = hf.enable(tiny("t5"), 1.2, KAPPA)
    model.config._attn_implementation = "eager"
    assert "attn_implementation" not in model.config.to_dict()
    model.config._attn_implementation = "fna"
    model.config.save_pretrained(tmp_path)
    assert tf.AutoConfig.from_pretrained(tmp_path)._attn_implementation == "fna"


def test_switching_adds_and_removes_the_cores() -> None:
    model = hf.enable(tiny("bert"), 1.2, KAPPA)
    layers = interface_layers(model).values()
    model.set_attn_implementation("eager")
    assert not any(hasattr(layer, "fna") for layer in layers)
    model.set_attn_implementation("fna")
    assert [layer.fna.attention.kappa for layer in layers] == [KAPPA, KAPPA]


def gemma2(**options: object) -> tf.PreTrainedModel:
    return tf.Gemma2ForCausalLM(tf.Gemma2Config(**DECODER_SIZES, sliding_window=4, **options))


def gpt_oss() -> tf.PreTrainedModel:
    return tf.GptOssForCausalLM(tf.GptOssConfig(**DECODER_SIZES, num_local_experts=2, num_experts_per_tok=1))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (gemma2, r"Gemma2ForCausalLM caps the logits of its attention \(softcap\).*use a model without logit soft"),
        (gpt_oss, r"GptOssForCausalLM adds attention sinks to the softmax \(s_aux\).*use a model without attention"),
    ],
)
def test_unsupported_options_are_refused_before_the_first_forward(make: type, message: str) -> None:
    model = make()
    before = model.config._attn_implementation
    for switch in (
        lambda: hf.enable(model, 1.2, KAPPA),
        lambda: hf.enable(model, 1.2, "auto"),
        lambda: model.set_attn_implementation("fna"),
    ):
        with pytest.raises(ValueError, match=message):
            switch()
    assert model.config._attn_implementation == before
    with pytest.raises(ValueError, match=message.replace("ForCausalLM", "(ForCausalLM|Model)")):
        type(model)._from_config(model.config, attn_implementation="fna")


def test_a_model_without_its_soft_cap_is_accepted() -> None:
    model = hf.enable(gemma2(attn_logit_softcapping=None).eval(), 1.2, KAPPA)
    with torch.no_grad():
        assert model(torch.arange(9)[None]).logits.isfinite().all()


@pytest.mark.parametrize("training", [True, False])
def test_grouped_keys_are_not_repeated(training: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    model = hf.enable(tiny("llama"), 1.2, KAPPA).train(training)
    heads = []
    run = kernels.KERNELS["cpu"].run

    def refuse(*args: object) -> None:
        raise AssertionError("the keys were repeated")

    monkeypatch.setattr(kernels, "repeat_heads", refuse)
    monkeypatch.setattr(kernels.base, "repeat_heads", refuse)
    monkeypatch.setattr(kernels.Cpu, "run", lambda self, call: (heads.append(call.k.size(1)), run(call))[1])
    batch = inputs("llama", (7, 4), "left")
    model(**batch)
    model.generate(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], max_new_tokens=2)
    assert set(heads) == {2}


@pytest.mark.parametrize("implementation", ["static", "dynamic"])
def test_prefill_returns_weights_in_the_shape_of_eager_attention(implementation: str) -> None:
    def attentions(model: tf.PreTrainedModel) -> tuple:
        batch = inputs("llama", (9, 9))
        cache = tf.StaticCache(model.config, max_cache_len=16) if implementation == "static" else tf.DynamicCache()
        with torch.no_grad():
            output = model(batch["input_ids"], past_key_values=cache, output_attentions=True, use_cache=True)
        return output.attentions

    model = tiny("llama")
    model.set_attn_implementation("eager")
    expected = attentions(model)
    actual = attentions(hf.enable(model, 1.2, KAPPA))
    assert len(actual) == len(expected) == 2
    for weights, reference in zip(actual, expected, strict=True):
        assert weights.shape == reference.shape == (2, 4, 9, 16 if implementation == "static" else 9)
        assert_close(weights.sum(-1), torch.ones(2, 4, 9))
        assert weights[..., 9:].eq(0).all()


@pytest.mark.parametrize("name", MODELS)
def test_every_model_returns_its_weights(name: str) -> None:
    model = tiny(name)
    model.set_attn_implementation("eager")
    keys = ("attentions", "encoder_attentions", "decoder_attentions", "cross_attentions")

    def shapes() -> dict:
        with torch.no_grad():
            output = model(**inputs(name), output_attentions=True)
        return {key: [weights.shape for weights in output[key]] for key in keys if output.get(key) is not None}

    expected = shapes()
    assert expected
    hf.enable(model, 1.2, KAPPA)
    assert shapes() == expected


def test_returned_weights_have_a_gradient() -> None:
    batch = inputs("llama")
    model = hf.enable(tiny("llama"), 1.2, KAPPA)
    output = model(**batch, output_attentions=True)
    expected = outputs(model, batch)
    mask = batch["attention_mask"][..., None]
    assert_close(output.logits * mask, expected, rtol=0, atol=1e-4)
    output.attentions[0].retain_grad()
    output.logits.sum().backward()
    assert output.attentions[0].grad.abs().max() > 0
