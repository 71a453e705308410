"""Studied translation models: each text is two graphs, the source in the encoder and the translation in the decoder."""

import math
from collections.abc import Sequence
from io import BytesIO
from typing import Any

import torch
from torch import Tensor

from fna_lightning.analysis.measurements import head_reports
from fna_lightning.analysis.models import Example, ModelInput, Scorer, StudiedModel, View, encoded
from fna_lightning.analysis.report import ModelReport
from fna_lightning.errors import UsageError
from fna_lightning.introspection.maps import AttentionMap, attention_maps
from fna_lightning.nn import Seq2Seq
from fna_lightning.plotting.graphs import alignment_figure
from fna_lightning.search import Hypothesis
from fna_lightning.tasks.data.padding import pad_tokens
from fna_lightning.tasks.translation.codec import BEGIN, END, TranslationCodec
from fna_lightning.tasks.translation.translator import translate

# number of sentences whose translation is scored under ablation
ABLATED = 16


class TranslationModel(StudiedModel):
    """A trained translation model; the input of an example is the token ids of a source, END included."""

    codec: TranslationCodec

    @property
    def comparable_key(self) -> object:
        return self.codec.source_tokenizer, self.codec.target_tokenizer

    @property
    def network(self) -> Seq2Seq:
        """The encoder-decoder network of the task."""
        network: Any = self.task.network
        assert isinstance(network, Seq2Seq)
        return network

    def batch(self, inputs: list[ModelInput]) -> tuple[Tensor, ...]:
        return pad_tokens(inputs)

    def translate(self, sources: list[list[int]]) -> list[Hypothesis]:
        """Return the best translation of each source."""
        tokens, lengths = self.batch(sources)
        decoding: Any = self.task.decoding
        return [hypotheses[0] for hypotheses in translate(self.network, tokens, lengths, decoding)]

    def maps(self, model_input: ModelInput) -> dict[str, AttentionMap]:
        """Return the weights of every encoder layer for one source."""
        tokens, lengths = self.batch([model_input])

        def run() -> dict[str, Tensor]:
            self.network.encode(tokens, lengths)
            return {"": lengths}

        return self.self_attention(attention_maps(self.task, run))

    def pair_maps(self, source: list[int], target: list[int]) -> dict[str, AttentionMap]:
        """Return the weights of every layer, cross-attention included, with ``target`` as the decoder's input."""
        tokens, lengths = self.batch([source])
        inputs = torch.tensor([[BEGIN, *target]])

        def run() -> dict[str, Tensor]:
            self.network.features(tokens, lengths, inputs)
            return {"network.encoder": lengths, "network.decoder": torch.tensor([inputs.size(1)])}

        return attention_maps(self.task, run)

    def token_probabilities(self, sources: list[list[int]], targets: list[list[int]]) -> list[Tensor]:
        """Return for each pair the (N, V) probabilities of every token at each position of the target, END included."""
        tokens, lengths = self.batch(sources)
        inputs = [[BEGIN, *target] for target in targets]
        padded, _ = pad_tokens(inputs)
        with torch.no_grad():
            probabilities = self.network(tokens, lengths, padded).softmax(dim=-1)
        return [rows[: len(ids)] for rows, ids in zip(probabilities, inputs, strict=True)]

    def examples(self, texts: Sequence[str], images: Sequence[str], max_length: int) -> list[Example]:
        if images:
            raise UsageError(f"--image {images[0]!r}: {self.path} is a text model; pass texts by --text")
        limit = min(max_length, self.codec.max_length) - 1
        return [
            self._example(f"text {number}", encoded(text, number, self.codec.encode(text)[:limit]))
            for number, text in enumerate(texts, start=1)
        ]

    def split_example(self, item: Any, title: str, max_length: int) -> Example | None:
        ids = [int(token) for token in item[0][: max_length - 1]]
        return self._example(title, ids) if ids else None

    def _example(self, title: str, ids: list[int]) -> Example:
        ids = [*ids, END]
        return Example(title, ids, self.codec.source_words(ids))

    def views(self, example: Example) -> list[View]:
        """Return the source, and its translation by this model, which every model is then measured on."""
        target = self.translate([example.input])[0].tokens
        words = self.codec.target_words([BEGIN, *target])
        return [
            View(f"{example.title}, source", example.words, lambda model: model.source_report(example)),
            View(f"{example.title}, translation", words, lambda model: model.target_report(example, target)),
        ]

    def source_report(self, example: Example) -> ModelReport:
        """Return the encoder's heads on one source, and the translation by this model."""
        best = self.translate([example.input])[0]
        heads = head_reports(self.maps(example.input))
        return ModelReport(self.codec.decode(best.tokens), math.exp(best.log_probability), heads)

    def target_report(self, example: Example, target: list[int]) -> ModelReport:
        """Return the decoder's heads on ``target``, its probability, and its cross-attention to the source."""
        maps = self.pair_maps(example.input, target)
        rows = self.token_probabilities([example.input], [target])[0]
        chosen = rows.gather(1, torch.tensor([*target, END])[:, None])
        decoder = {name: layer for name, layer in self.self_attention(maps).items() if ".decoder." in name}
        cross = [layer.weights[0].mean(dim=0) for name, layer in maps.items() if name.endswith(".cross_attn")]
        png = BytesIO()
        figure = alignment_figure(cross, example.words, self.codec.target_words([*target, END]))
        # tight: long words at the left would be cut off otherwise
        figure.savefig(png, format="png", bbox_inches="tight")
        probability = chosen.log().sum().exp().item()
        return ModelReport(self.codec.decode(target), probability, head_reports(decoder), png.getvalue())

    def scorer(self, examples: list[Example]) -> Scorer:
        """Score the translations made without ablation, each token given the tokens before it.

        The probability is the mean over their tokens, the accuracy the share of tokens that are still the likeliest.
        """
        sources = [example.input for example in examples[:ABLATED]]
        targets = [hypothesis.tokens for hypothesis in self.translate(sources)]
        intact = torch.cat([torch.tensor([*target, END]) for target in targets])

        def score() -> tuple[float, float | None]:
            rows = torch.cat(self.token_probabilities(sources, targets))
            accuracy = (rows.argmax(dim=-1) == intact).double().mean().item()
            return rows.gather(1, intact[:, None]).mean().item(), accuracy

        return score
