"""FNA in small transformers models: exact with masks, caches and beam search, and preserved by a reload."""

from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

tf = pytest.importorskip("transformers", reason="needs the extra `hf`")

from fna_lightning.attention import Fractional  # noqa: E402
from fna_lightning.integrations import hf  # noqa: E402
from fna_lightning.integrations.hf.layers import interface_layers  # noqa: E402
from fna_lightning.introspection.maps import attention_maps  # noqa: E402

from helpers.hf_models import MODELS, SIZES, inputs, outputs, register_reference, tiny  # noqa: E402

every_model = pytest.mark.parametrize("name", MODELS)
KAPPA = 1.5


@every_model
@pytest.mark.parametrize("alpha", [1.2, 2.0])
@pytest.mark.parametrize("side", ["right", "left"])
def test_fna_equals_the_formula_with_masks(name: str, alpha: float, side: str) -> None:
    model, batch = tiny(name), inputs(name, side=side)
    dot_product = outputs(model, batch)
    register_reference(alpha, KAPPA)
    model.set_attn_implementation("reference")
    expected = outputs(model, batch)
    actual = outputs(hf.enable(model, alpha, KAPPA), batch)
    assert_close(actual, expected, rtol=0, atol=1e-5)
    assert (actual - dot_product).abs().max() > 1e-2


@pytest.mark.parametrize("name", [name for name in MODELS if not MODELS[name].images])
def test_padding_does_not_change_the_output(name: str) -> None:
    model = hf.enable(tiny(name), 1.2, KAPPA)
    padded = {side: outputs(model, inputs(name, (9, 5), side)) for side in ("right", "left")}
    ids = inputs(name, (9, 5))["input_ids"][1:, :5]
    alone = inputs(name, (5,)) | {"input_ids": ids}
    if "decoder_input_ids" in alone:
        alone["decoder_input_ids"] = inputs(name)["decoder_input_ids"][1:]
    expected = outputs(model, alone)[0]
    per_token = padded["right"].size(1) == 9
    assert_close(padded["right"][1, :5] if per_token else padded["right"][1], expected, rtol=0, atol=1e-5)
    if name == "marian":
        # Marian takes no position ids, so left padding shifts the positions; the padding tokens must not matter.
        batch = inputs(name, (9, 5), "left")
        changed = batch | {"input_ids": batch["input_ids"].where(batch["attention_mask"] > 0, 7)}
        assert_close(outputs(model, changed), padded["left"], rtol=0, atol=0)
    else:
        assert_close(padded["left"][1, 4:] if per_token else padded["left"][1], expected, rtol=0, atol=1e-5)


GENERATORS = [name for name in MODELS if name not in ("bert", "vit")]


@pytest.mark.parametrize("name", GENERATORS)
@pytest.mark.parametrize("beams", [1, 4])
def test_cached_generation_equals_uncached(name: str, beams: int) -> None:
    model = hf.enable(tiny(name), 1.2, KAPPA)
    batch = inputs(name, (7, 4), "left")
    batch.pop("decoder_input_ids", None)
    batch.pop("position_ids", None)
    options = {"num_beams": beams, "max_new_tokens": 6, "min_new_tokens": 6, "do_sample": False}
    options |= {"output_scores": True, "return_dict_in_generate": True, "pad_token_id": 0}
    cached, uncached = (model.generate(**batch, **options, use_cache=use) for use in (True, False))
    assert cached.sequences.equal(uncached.sequences)
    assert len(cached.scores) == 6
    for a, b in zip(cached.scores, uncached.scores, strict=True):
        finite = b.isfinite()
        assert finite.any()
        assert_close(a[finite], b[finite], rtol=1e-4, atol=1e-4)
    # Other settings of FNA give other scores, so FNA is used in generation.
    other = hf.enable(tiny(name), 1.9, 0.2).generate(**batch, **options)
    assert not torch.equal(other.scores[0], cached.scores[0])


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_batched_generation_equals_single_generation(name: str) -> None:
    model = hf.enable(tiny(name), 1.2, KAPPA)
    batch = inputs(name, (7, 4), "left")
    options = {"max_new_tokens": 5, "min_new_tokens": 5, "do_sample": False, "pad_token_id": 0}
    together = model.generate(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], **options)
    alone = model.generate(
        input_ids=batch["input_ids"][1:, 3:], attention_mask=batch["attention_mask"][1:, 3:], **options
    )
    assert together[1, 3:].equal(alone[0])


@every_model
def test_a_reloaded_model_uses_fna(name: str, tmp_path: Path) -> None:
    batch = inputs(name)
    model = hf.enable(tiny(name), 1.4, "auto", batch=batch)
    expected = outputs(model, batch)
    for folder in (tmp_path / "once", tmp_path / "twice"):
        model.save_pretrained(folder)
        model = type(model).from_pretrained(folder).eval()
        assert model.config._attn_implementation == "fna"
        assert_close(outputs(model, batch), expected, rtol=0, atol=1e-6)
    plain = type(model).from_pretrained(folder, attn_implementation="sdpa").eval()
    assert (outputs(plain, batch) - expected).abs().max() > 1e-3


def test_reloading_without_this_package_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hf.enable(tiny("bert"), 1.2, KAPPA).save_pretrained(tmp_path)
    monkeypatch.delitem(tf.AttentionInterface._global_mapping, "fna")
    with pytest.raises(ValueError, match='attn_implementation="fna"'):
        tf.BertForSequenceClassification.from_pretrained(tmp_path)


def test_the_base_model_of_a_calibrated_model_keeps_its_kappas(tmp_path: Path) -> None:
    model = hf.enable(tiny("bert"), 1.3, "auto", batch=inputs("bert"))
    model.save_pretrained(tmp_path)
    base = tf.BertModel.from_pretrained(tmp_path)
    kappas = [layer.fna.attention.kappa for layer in interface_layers(base).values()]
    assert kappas == [layer.fna.attention.kappa for layer in interface_layers(model).values()]
    assert len(kappas) == 2
    assert len(set(kappas[0])) == 4


def test_attn_implementation_alone_enables_fna() -> None:
    model = tf.AutoModel.from_config(tf.BertConfig(**SIZES), attn_implementation="fna").eval()
    core, _ = [layer.fna for layer in interface_layers(model).values()]
    assert repr(core.attention) == repr(Fractional(1.2, "text"))
    switched = tf.BertModel(tf.BertConfig(**SIZES)).eval()
    switched.load_state_dict(model.state_dict())
    switched.set_attn_implementation("fna")
    batch = inputs("bert")
    with torch.no_grad():
        assert_close(switched(**batch).last_hidden_state, model(**batch).last_hidden_state)
    assert switched.config.to_dict()["fna"] == {"alpha": 1.2, "kappa": "text"}


def test_disable_restores_dot_product_attention() -> None:
    model, batch = tiny("bert"), inputs("bert")
    before = outputs(model, batch)
    hf.disable(hf.enable(model, 1.2, KAPPA))
    assert_close(outputs(model, batch), before, rtol=0, atol=0)
    assert "fna" not in model.config.to_json_string()


@pytest.mark.parametrize(
    ("class_name", "config"),
    [
        ("LongformerModel", {"attention_window": 4}),
        ("BigBirdModel", {"attention_type": "original_full"}),
    ],
)
def test_a_model_that_would_ignore_fna_is_an_error(class_name: str, config: dict) -> None:
    sizes = {"vocab_size": 60, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    model_class = getattr(tf, class_name)
    model = model_class(model_class.config_class(**sizes, intermediate_size=16, **config))
    with pytest.raises(ValueError, match=f"{class_name} computes attention with its own code.*such as BERT"):
        hf.enable(model, 1.2, 1.0)
    with pytest.raises(ValueError, match=f"{class_name} computes attention with its own code"):
        model_class._from_config(model.config, attn_implementation="fna")


@every_model
def test_auto_matches_the_entropy_of_dot_product_attention(name: str) -> None:
    """The input of the first layer does not depend on the attention, so its rows can be compared."""
    batch, model = inputs(name), tiny(name, std=0.12)
    model.set_attn_implementation("eager")
    key = "encoder_attentions" if MODELS[name].decoder else "attentions"
    with torch.no_grad():
        own = model(**batch, output_attentions=True)[key][0]
    hf.enable(model, 1.2, "auto", batch=batch)
    maps = attention_maps(model, lambda: (model(**batch), None)[1])
    calibrated = next(iter(maps.values())).weights
    real = batch.get("attention_mask", torch.ones(own.shape[0], own.shape[2]))[:, None] > 0
    entropies = []
    for weights in (own, calibrated):
        rows = torch.special.entr(weights.double()).sum(-1)
        # The first query of a causal model attends to one key only.
        counted = real & ((weights > 0).sum(-1) > 1)
        entropies.append((rows * counted).sum((0, 2)) / counted.sum((0, 2)))
    assert_close(entropies[1], entropies[0], rtol=0, atol=2e-3)
    assert (own - calibrated).abs().max() > 1e-2


def test_settings_out_of_range_are_an_error() -> None:
    model = tiny("bert")
    with pytest.raises(ValueError, match=r"alpha must lie in \[1, 2\].*got 3"):
        hf.enable(model, 3.0)
    with pytest.raises(ValueError, match="kappa must be positive and finite, got -1"):
        hf.enable(model, 1.2, -1.0)


def test_output_attentions_returns_the_weights() -> None:
    model, batch = hf.enable(tiny("llama"), 1.2, KAPPA), inputs("llama")
    with torch.no_grad():
        attentions = model(**batch, output_attentions=True).attentions
    maps = attention_maps(model, lambda: (model(**batch), None)[1])
    assert len(attentions) == 2
    for weights, layer_map in zip(attentions, maps.values(), strict=True):
        assert_close(weights, layer_map.weights)


def test_a_head_too_sharp_for_fna_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    hf.enable(tiny("t5", std=1.0), 1.2, "auto", batch=inputs("t5"))
    assert "heads are sharper than FNA with alpha = 1.2 can be; they get the smallest kappa" in caplog.text


@every_model
def test_auto_without_a_batch_uses_random_inputs_and_warns(name: str, caplog: pytest.LogCaptureFixture) -> None:
    model = hf.enable(tiny(name))
    assert "pass batch= to use your data" in caplog.text
    assert isinstance(model.config.fna["kappa"], dict)


@pytest.mark.parametrize("name", ["bert", "t5", "gpt2"])
def test_attention_maps_of_the_layers(name: str) -> None:
    model, batch = hf.enable(tiny(name), 1.2, KAPPA), inputs(name)
    lengths = batch["attention_mask"].sum(-1)

    def run() -> dict:
        model(**batch)
        return {"": lengths} if name != "t5" else {"encoder": lengths}

    maps = attention_maps(model, run)
    assert len(maps) == {"bert": 2, "gpt2": 2, "t5": 6}[name]
    assert {layer for layer, layer_map in maps.items() if not layer_map.is_self} == {
        layer for layer in maps if "EncDec" in layer
    }
    first = next(iter(maps.values())).weights
    assert_close(first.sum(-1)[0], torch.ones(4, 9))
    assert first[1, :, :5, 5:].eq(0).all()


def test_training_with_the_transformers_trainer(tmp_path: Path) -> None:
    pytest.importorskip("accelerate", reason="needed by transformers' Trainer")
    torch.manual_seed(0)
    model = hf.enable(tiny("bert"), 1.2, "auto", batch=inputs("bert"))
    rows = torch.randint(3, 60, (48, 12), generator=torch.Generator().manual_seed(0))
    # The label is whether a token occurs anywhere in the sequence.
    rows[::2, 5] = 3
    data = [{"input_ids": row, "labels": int((row == 3).any())} for row in rows]
    options = tf.TrainingArguments(
        str(tmp_path), max_steps=40, per_device_train_batch_size=16, learning_rate=3e-3, logging_steps=1,
        report_to="none", save_strategy="no", use_cpu=True, disable_tqdm=True, seed=0,
    )  # fmt: skip
    trainer = tf.Trainer(model, options, train_dataset=data)
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert sum(losses[-5:]) < 0.7 * sum(losses[:5])
    assert model.config._attn_implementation == "fna"
