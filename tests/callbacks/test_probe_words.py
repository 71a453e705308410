"""The labels of figures are the tokens of the first probe sequence."""

import torch

from fna_lightning.attention import DotProduct
from fna_lightning.callbacks.attention_figures import AttentionFigures
from fna_lightning.callbacks.probe_words import probe_words
from fna_lightning.introspection.maps import attention_maps
from fna_lightning.introspection.probe import probe_batch
from fna_lightning.nn import EncoderConfig
from fna_lightning.tasks import DigitsData, NumberData, ReviewData, TextClassification
from fna_lightning.tasks.text.data import TextBatch


def test_words_of_a_text() -> None:
    data = ReviewData(train_size=8, eval_size=4, longest=40)
    batch = probe_batch(data.val_dataloader(), 3)
    words = probe_words(batch, data.codec, "encoder.layers.0.self_attn")
    assert words == data.codec.words(batch.tokens[0, : batch.lengths[0]].tolist())
    assert all(word.isalpha() for word in words)


def test_empty_sequences_are_skipped_as_in_the_maps() -> None:
    data = ReviewData(train_size=8, eval_size=4, longest=40)
    batch = TextBatch(torch.tensor([[0, 0], [5, 6]]), torch.tensor([0, 2]), torch.tensor([0, 0]))
    assert probe_words(batch, data.codec, "") == data.codec.words([5, 6])


def test_encoder_and_decoder_of_a_translation_have_their_own_words() -> None:
    data = NumberData(train_size=8, eval_size=4)
    batch = probe_batch(data.val_dataloader(), 2)
    source = probe_words(batch, data.codec, "network.encoder.layers.0.self_attn")
    target = probe_words(batch, data.codec, "network.decoder.layers.0.self_attn")
    assert len(source) == batch.source_lengths[0]
    assert len(target) == batch.target_lengths[0]
    assert source != target


def test_images_have_no_words() -> None:
    data = DigitsData()
    assert probe_words(probe_batch(data.val_dataloader(), 2), data.codec, "layers.0.self_attn") is None


def test_figures_of_a_head_carry_the_words_and_the_name_of_the_head() -> None:
    torch.manual_seed(0)
    data = ReviewData(train_size=8, eval_size=4, longest=30)
    encoder = EncoderConfig(dim=8, depth=1, num_heads=2, ffn_dim=8)
    task = TextClassification(data.vocab_size, 2, DotProduct(), encoder)
    batch = probe_batch(data.val_dataloader(), 1)
    figures = AttentionFigures(["spectral_gap", "mean_hops"])
    maps = attention_maps(task, lambda: task.probe(batch))
    figures.set_example(maps, {name: [1] for name in maps}, words=lambda layer: probe_words(batch, data.codec, layer))
    drawn = {}

    class Board:
        def add_figure(self, tag, figure, step) -> None:
            drawn[tag] = figure

        def add_histogram(self, tag, values, step) -> None:
            pass

    figures._draw([Board()], 0, *figures._example)
    assert list(drawn) == [
        f"attention_figures/{name}" for name in ("attention_matrix", "hop_matrix", "spectrum", "diffusion_map")
    ]
    words = data.codec.words(batch.tokens[0].tolist())
    for name in ("attention_matrix", "hop_matrix"):
        labels = drawn[f"attention_figures/{name}"].axes[0].get_yticklabels()
        assert len(labels) == len(words)
        assert labels[0].get_text() == words[0]
    for figure in drawn.values():
        assert figure.axes[0].get_title(loc="left")
        assert "encoder.layers.0.self_attn, head 1" in [text.get_text() for text in figure.axes[0].texts]
