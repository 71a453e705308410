"""Studied translation models: each text is two graphs, the source in the encoder and the translation in the decoder."""

import math
from typing import Any, ClassVar

import torch
from torch import Tensor

from fna_lightning.analysis.heads import cross_heads, head_reports, rolled_out
from fna_lightning.analysis.models import Example, ModelInput, Scorer, Scores, StudiedModel, UserInputs, View, encoded
from fna_lightning.analysis.report import ModelReport
from fna_lightning.introspection.maps import AttentionMap, attention_maps
from fna_lightning.nn import Seq2Seq
from fna_lightning.search import Hypothesis
from fna_lightning.tasks.data.padding import pad_tokens
from fna_lightning.tasks.translation.codec import BEGIN, END, TranslationCodec
from fna_lightning.tasks.translation.translator import translate

# number of sentences whose translation is scored under ablation
ABLATED = 16


class TranslationModel(StudiedModel):
    """A trained translation model; the input of an example is the token ids of a source, END included."""

    codec: TranslationCodec
    kind: ClassVar[str] = "translation"
    argument: ClassVar[str] = "sources"

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
        """Return the padded token ids of sources, and their lengths."""
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

    def examples(self, inputs: UserInputs, max_length: int) -> list[Example]:
        limit = min(max_length, self.codec.max_length) - 1
        sources = [
            encoded(text, number, self.codec.encode(text)) for number, text in enumerate(inputs.sources, start=1)
        ]
        return [self._example(f"text {number}", ids, limit) for number, ids in enumerate(sources, start=1)]

    def split_example(self, item: Any, title: str, max_length: int) -> Example | None:
        ids = [int(token) for token in item[0]]
        reference = self.codec.decode([int(token) for token in item[1]])
        return self._example(title, ids, max_length - 1, reference) if ids else None

    def _example(self, title: str, ids: list[int], limit: int, reference: str | None = None) -> Example:
        """Return at most ``limit`` tokens of a source, followed by END, as an example."""
        cut = [*ids[:limit], END]
        words = self.codec.source_words(cut)
        return Example(title, cut, words, reference=reference, truncated=len(ids) > limit)

    def views(self, example: Example) -> list[View]:
        """Return the source, and its translation by this model, which every model is then measured on."""
        target = self.translate([example.input])[0].tokens
        words = self.codec.target_words([BEGIN, *target])
        axes = {"source_words": example.words, "target_words": self.codec.target_words([*target, END])}
        return [
            View(
                f"{example.title}, source",
                example.words,
                lambda model, stored: model.source_report(example, stored),
                example.reference,
            ),
            View(
                f"{example.title}, translation",
                words,
                lambda model, stored: model.target_report(example, target, stored),
                example.reference,
                axes,
            ),
        ]

    def source_report(self, example: Example, stored: bool) -> ModelReport:
        """Return the encoder's heads on one source, and the translation by this model."""
        best = self.translate([example.input])[0]
        maps = self.maps(example.input)
        prediction, probability = self.codec.decode(best.tokens), math.exp(best.log_probability)
        return ModelReport(
            prediction, probability, None, {}, head_reports(maps, stored), rollout=rolled_out(maps, stored)
        )

    def target_report(self, example: Example, target: list[int], stored: bool) -> ModelReport:
        """Return the decoder's heads on ``target``, its probability, and its cross-attention to the source."""
        maps = self.pair_maps(example.input, target)
        rows = self.token_probabilities([example.input], [target])[0]
        chosen = rows.gather(1, torch.tensor([*target, END])[:, None])
        decoder = {name: layer for name, layer in self.self_attention(maps).items() if ".decoder." in name}
        cross = {name: layer for name, layer in maps.items() if not layer.is_self}
        return ModelReport(
            self.codec.decode(target),
            chosen.log().sum().exp().item(),
            None,
            {},
            head_reports(decoder, stored),
            cross_heads(cross, stored),
            rolled_out(decoder, stored),
        )

    def scorer(self, examples: list[Example]) -> Scorer | None:
        """Score the translations made without ablation, each token given the tokens before it.

        The probability of a translation is the mean over its tokens; the accuracy is the share of all tokens that are
        still the likeliest.
        """
        sources = [example.input for example in examples[:ABLATED]]
        targets = [hypothesis.tokens for hypothesis in self.translate(sources)]
        intact = [torch.tensor([*target, END]) for target in targets]

        def score() -> Scores:
            rows = self.token_probabilities(sources, targets)
            pairs = list(zip(rows, intact, strict=True))
            means = torch.stack([row.gather(1, tokens[:, None]).mean() for row, tokens in pairs])
            correct = torch.cat([row.argmax(dim=-1) == tokens for row, tokens in pairs])
            return Scores(means[None], correct[None])

        return score
