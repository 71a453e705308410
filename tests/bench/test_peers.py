"""Networks of PyTorch, transformers and timm in the place of ours: same sizes, same input, gradients everywhere."""

import argparse
import json

import pytest
import torch

from fna_lightning.bench import train as bench_train
from fna_lightning.bench.peers import PEERS, VARIANTS, check_bfloat16, with_peer
from fna_lightning.config.instantiate import from_config
from fna_lightning.errors import UsageError

SMALL = ["data.train_size=64", "data.longest=40", "data.batch_size=8"]


def parameters(module: torch.nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize("name", ["torch", "transformers"])
def test_text_encoders_of_other_packages_have_only_further_biases(name) -> None:
    built = from_config("reviews_dp.yaml", [*SMALL, "model.encoder.depth=2", "model.encoder.dim=16"])
    peer = with_peer(name, built.task)
    assert parameters(peer) == parameters(built.task) + 2 * 3 * 16
    batch = next(iter(built.data.train_dataloader()))
    assert peer(batch.tokens, batch.lengths).shape == built.task(batch.tokens, batch.lengths).shape
    # padding is masked out
    peer.eval()
    short = peer(batch.tokens[:1, : batch.lengths[0]], batch.lengths[:1])
    padded = torch.nn.functional.pad(batch.tokens[:1, : batch.lengths[0]], (0, 5))
    assert torch.allclose(peer(padded, batch.lengths[:1]), short, atol=1e-5)


@pytest.mark.parametrize("name", ["torch", "timm"])
def test_vision_transformers_of_other_packages(name) -> None:
    built = from_config(
        "digits_dp.yaml", ["model.vit.tokens=Patches", "model.vit.tokens.patch=2", "model.vit.pooling=cls"]
    )
    peer = with_peer(name, built.task)
    further = 0 if name == "timm" else 3 * built.task.vit.encoder.dim * len(built.task.vit.encoder.layers)
    assert parameters(peer) == parameters(built.task) + further
    images = torch.rand(3, 1, 8, 8)
    assert peer.vit(images).shape == built.task.vit(images).shape


def test_a_torch_encoder_with_our_weights_computes_the_same() -> None:
    built = from_config("reviews_dp.yaml", [*SMALL, "model.encoder.depth=1", "model.encoder.dim=16"])
    peer = with_peer("torch", built.task).eval()
    task = built.task.eval()
    ours, theirs = task.encoder.layers[0], peer.encoder.encoder.layers[0]
    with torch.no_grad():
        projection = ours.self_attn.projection
        weights = [linear.weight for linear in projection.modules() if isinstance(linear, torch.nn.Linear)]
        theirs.self_attn.in_proj_weight.copy_(torch.cat([*weights, ours.self_attn.value.weight]))
        theirs.self_attn.in_proj_bias.zero_()
        theirs.self_attn.out_proj.load_state_dict(ours.self_attn.out.state_dict())
        for mine, other in (
            (ours.feed_forward[0], theirs.linear1),
            (ours.feed_forward[3], theirs.linear2),
            (ours.self_attn_norm, theirs.norm1),
            (ours.feed_forward_norm, theirs.norm2),
        ):
            other.load_state_dict(mine.state_dict())
    batch = next(iter(built.data.train_dataloader()))
    assert torch.allclose(peer(batch.tokens, batch.lengths), task(batch.tokens, batch.lengths), atol=1e-5)


def test_peers_that_do_not_fit_are_one_sentence() -> None:
    text = from_config("reviews_dp.yaml", SMALL).task
    with pytest.raises(
        UsageError, match=r"timm's vision Transformer has patches and a CLS token, the network of TextClass"
    ):
        with_peer("timm", text)
    with pytest.raises(UsageError, match=r"Translation has no encoder that a peer could replace; use a text or image"):
        with_peer("torch", from_config("numbers_dp.yaml", []).task)
    with pytest.raises(
        UsageError, match=r"BERT is post-LN, but the configuration has pre_norm: true; compare with torch"
    ):
        with_peer("transformers", from_config("reviews_dp.yaml", [*SMALL, "model.encoder.pre_norm=true"]).task)


@pytest.mark.e2e
def test_variants_are_the_same_network(tmp_path, capsys) -> None:
    parser = argparse.ArgumentParser()
    bench_train.add_arguments(parser)
    variants = [name for name in VARIANTS if name != "bf16" or torch.ops.mkldnn._is_mkldnn_bf16_supported()]
    words = ["--config", "reviews_fna.yaml", "--against", ",".join(variants), "--steps", "2", "--repeats", "1"]
    words += [word for setting in SMALL for word in ("--set", setting)]
    assert bench_train.run(parser.parse_args([*words, "--json", str(tmp_path / "times.json")])) == 0
    report = json.loads((tmp_path / "times.json").read_text())
    assert set(report["ratios"]) == {f"reviews_fna / {name}" for name in variants}
    assert len(set(report["parameters"].values())) == 1
    assert "reviews_fna / compile:" in capsys.readouterr().out


def test_bfloat16_needs_a_processor_that_has_it(monkeypatch) -> None:
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
    with pytest.raises(UsageError, match=r"--against bf16 needs a processor with bfloat16 instructions"):
        check_bfloat16()


@pytest.mark.e2e
def test_ratios_to_all_text_peers(tmp_path, capsys) -> None:
    parser = argparse.ArgumentParser()
    bench_train.add_arguments(parser)
    words = ["--config", "reviews_fna.yaml", "--against", "torch,transformers", "--steps", "2", "--repeats", "1"]
    words += [word for setting in SMALL for word in ("--set", setting)]
    assert bench_train.run(parser.parse_args([*words, "--json", str(tmp_path / "times.json")])) == 0
    report = json.loads((tmp_path / "times.json").read_text())
    assert set(report["ratios"]) == {"reviews_fna / torch", "reviews_fna / transformers"}
    assert all(ratio["same_batches"] for ratio in report["ratios"].values())
    assert "transformers" in report["versions"]
    assert set(PEERS) == {"torch", "transformers", "timm"}
    assert "reviews_fna / torch:" in capsys.readouterr().out
