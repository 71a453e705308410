"""FNA in tiny models of transformers: exact with masks, caches and beams, kept by a reload, refused where ignored."""

from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

tf = pytest.importorskip("transformers", reason="needs the extra `hf`")

from fna_lightning.attention import Fractional  # noqa: E402
from fna_lightning.integrations import hf  # noqa: E402
from fna_lightning.integrations.hf.layers import interface_layers  # noqa: E402
from fna_lightning.introspection.maps import attention_maps  # noqa: E402

from helpers.hf_models import MODELS, SIZES, inputs, outputs, tiny, write_out  # noqa: E402

every_model = pytest.mark.parametrize("name", MODELS)
KAPPA = 1.5


@every_model
@pytest.mark.parametrize("alpha", [1.2, 2.0])
@pytest.mark.parametrize("side", ["right", "left"])
def test_it_is_the_written_formula_with_masks(name: str, alpha: float, side: str) -> None:
    model, batch = tiny(name), inputs(name, side=side)
    dot_product = outputs(model, batch)
    write_out(alpha, KAPPA)
    model.set_attn_implementation("written")
    want = outputs(model, batch)
    got = outputs(hf.enable(model, alpha, KAPPA), batch)
    assert_close(got, want, rtol=0, atol=1e-5)
    assert (got - dot_product).abs().max() > 1e-2


@every_model
def test_padding_changes_nothing(name: str) -> None:
    if MODELS[name].images:
        pytest.skip("images have no padding")
    model = hf.enable(tiny(name), 1.2, KAPPA)
    both = {side: outputs(model, inputs(name, (9, 5), side)) for side in ("right", "left")}
    ids = inputs(name, (9, 5))["input_ids"][1:, :5]
    alone = inputs(name, (5,)) | {"input_ids": ids}
    if "decoder_input_ids" in alone:
        alone["decoder_input_ids"] = inputs(name)["decoder_input_ids"][1:]
    want = outputs(model, alone)[0]
    long = both["right"].size(1) == 9
    assert_close(both["right"][1, :5] if long else both["right"][1], want, rtol=0, atol=1e-5)
    if name == "marian":
        # its places cannot be told, so tokens on the right are at other places; what padding holds must not matter
        batch = inputs(name, (9, 5), "left")
        changed = batch | {"input_ids": batch["input_ids"].where(batch["attention_mask"] > 0, 7)}
        assert_close(outputs(model, changed), both["left"], rtol=0, atol=0)
    else:
        assert_close(both["left"][1, 4:] if long else both["left"][1], want, rtol=0, atol=1e-5)


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
    cached, whole = (model.generate(**batch, **options, use_cache=use) for use in (True, False))
    assert cached.sequences.equal(whole.sequences)
    for a, b in zip(cached.scores, whole.scores, strict=True):
        finite = b.isfinite()
        assert_close(a[finite], b[finite], rtol=1e-4, atol=1e-4)
    # and it is FNA that generates
    other = hf.enable(tiny(name), 1.9, 0.2).generate(**batch, **options)
    assert not torch.equal(other.scores[0], cached.scores[0])


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_a_batch_generates_what_each_prompt_does_alone(name: str) -> None:
    model = hf.enable(tiny(name), 1.2, KAPPA)
    batch = inputs(name, (7, 4), "left")
    options = {"max_new_tokens": 5, "min_new_tokens": 5, "do_sample": False, "pad_token_id": 0}
    together = model.generate(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], **options)
    alone = model.generate(
        input_ids=batch["input_ids"][1:, 3:], attention_mask=batch["attention_mask"][1:, 3:], **options
    )
    assert together[1, 3:].equal(alone[0])


@every_model
def test_a_reload_is_fna_again(name: str, tmp_path: Path) -> None:
    batch = inputs(name)
    model = hf.enable(tiny(name), 1.4, "auto", batch=batch)
    want = outputs(model, batch)
    for folder in (tmp_path / "once", tmp_path / "twice"):
        model.save_pretrained(folder)
        model = type(model).from_pretrained(folder).eval()
        assert model.config._attn_implementation == "fna"
        assert_close(outputs(model, batch), want, rtol=0, atol=1e-6)
    plain = type(model).from_pretrained(folder, attn_implementation="sdpa").eval()
    assert (outputs(plain, batch) - want).abs().max() > 1e-3


def test_a_reload_without_this_package_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hf.enable(tiny("bert"), 1.2, KAPPA).save_pretrained(tmp_path)
    monkeypatch.delitem(tf.AttentionInterface._global_mapping, "fna")
    with pytest.raises(ValueError, match='attn_implementation="fna"'):
        tf.BertForSequenceClassification.from_pretrained(tmp_path)


def test_the_body_of_a_calibrated_model_keeps_its_kappas(tmp_path: Path) -> None:
    model = hf.enable(tiny("bert"), 1.3, "auto", batch=inputs("bert"))
    model.save_pretrained(tmp_path)
    body = tf.BertModel.from_pretrained(tmp_path)
    sites = [one.fna.attention.kappa for one in interface_layers(body).values()]
    assert sites == [one.fna.attention.kappa for one in interface_layers(model).values()]
    assert len(sites) == 2
    assert len(set(sites[0])) == 4


def test_the_name_alone_is_enough() -> None:
    model = tf.AutoModel.from_config(tf.BertConfig(**SIZES), attn_implementation="fna").eval()
    (site, _) = [one.fna for one in interface_layers(model).values()]
    assert repr(site.attention) == repr(Fractional(1.2, "text"))
    switched = tf.BertModel(tf.BertConfig(**SIZES)).eval()
    switched.load_state_dict(model.state_dict())
    switched.set_attn_implementation("fna")
    batch = inputs("bert")
    with torch.no_grad():
        assert_close(switched(**batch).last_hidden_state, model(**batch).last_hidden_state)
    assert switched.config.to_dict()["fna"] == {"alpha": 1.2, "kappa": "text"}


def test_disable_gives_dot_products_back() -> None:
    model, batch = tiny("bert"), inputs("bert")
    before = outputs(model, batch)
    hf.disable(hf.enable(model, 1.2, KAPPA))
    assert_close(outputs(model, batch), before, rtol=0, atol=0)
    assert "fna" not in model.config.to_json_string()


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        ("LongformerModel", {"attention_window": 4}),
        ("BigBirdModel", {"attention_type": "original_full"}),
    ],
)
def test_a_model_that_would_ignore_it_is_refused(kind: str, config: dict) -> None:
    sizes = {"vocab_size": 60, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    model_class = getattr(tf, kind)
    model = model_class(model_class.config_class(**sizes, intermediate_size=16, **config))
    with pytest.raises(ValueError, match=f"{kind} computes attention by code of its own.*such as BERT"):
        hf.enable(model, 1.2, 1.0)
    with pytest.raises(ValueError, match=f"{kind} computes attention by code of its own"):
        model_class._from_config(model.config, attn_implementation="fna")


@every_model
def test_auto_matches_the_entropy_of_the_models_own_attention(name: str) -> None:
    """The first layer sees the same tokens whatever the attention, so its rows can be compared from outside."""
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
        # the first row of a causal model sees one key only
        counted = real & ((weights > 0).sum(-1) > 1)
        entropies.append((rows * counted).sum((0, 2)) / counted.sum((0, 2)))
    assert_close(entropies[1], entropies[0], rtol=0, atol=2e-3)
    assert (own - calibrated).abs().max() > 1e-2


def test_settings_outside_their_range_are_named() -> None:
    model = tiny("bert")
    with pytest.raises(ValueError, match=r"alpha must lie in \[1, 2\].*got 3"):
        hf.enable(model, 3.0)
    with pytest.raises(ValueError, match="kappa must be positive and finite, got -1"):
        hf.enable(model, 1.2, -1.0)


def test_weights_are_returned_where_a_model_passes_the_wish_on() -> None:
    model, batch = hf.enable(tiny("llama"), 1.2, KAPPA), inputs("llama")
    with torch.no_grad():
        given = model(**batch, output_attentions=True).attentions
    maps = attention_maps(model, lambda: (model(**batch), None)[1])
    for one, layer in zip(given, maps.values(), strict=True):
        assert_close(one, layer.weights)


def test_a_head_sharper_than_any_power_law_is_said(caplog: pytest.LogCaptureFixture) -> None:
    hf.enable(tiny("t5", std=1.0), 1.2, "auto", batch=inputs("t5"))
    assert "heads are sharper than FNA of alpha = 1.2 can be; they get the sharpest" in caplog.text


@every_model
def test_auto_without_a_batch_makes_one_up_and_says_so(name: str, caplog: pytest.LogCaptureFixture) -> None:
    model = hf.enable(tiny(name))
    assert "pass batch= to calibrate on yours" in caplog.text
    assert isinstance(model.config.fna["kappa"], dict)


@pytest.mark.parametrize("name", ["bert", "t5", "gpt2"])
def test_graph_functions_see_the_layers(name: str) -> None:
    model, batch = hf.enable(tiny(name), 1.2, KAPPA), inputs(name)
    lengths = batch["attention_mask"].sum(-1)

    def run() -> dict:
        model(**batch)
        return {"": lengths} if name != "t5" else {"encoder": lengths}

    maps = attention_maps(model, run)
    assert len(maps) == {"bert": 2, "gpt2": 2, "t5": 6}[name]
    assert {layer for layer, found in maps.items() if not found.is_self} == {
        layer for layer in maps if "EncDec" in layer
    }
    first = next(iter(maps.values())).weights
    assert_close(first.sum(-1)[0], torch.ones(4, 9))
    assert first[1, :, :5, 5:].eq(0).all()


def test_the_trainer_of_transformers_trains_it(tmp_path: Path) -> None:
    pytest.importorskip("accelerate", reason="transformers' Trainer needs it")
    torch.manual_seed(0)
    model = hf.enable(tiny("bert"), 1.2, "auto", batch=inputs("bert"))
    rows = torch.randint(3, 60, (48, 12), generator=torch.Generator().manual_seed(0))
    # a token that is there or not, at any place: attention has to find it
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
