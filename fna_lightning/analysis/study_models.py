"""The study of one or several models: measure them on examples and return a report."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from fna_lightning.analysis.fields import FieldModel, field_lengths, neighbor_summary
from fna_lightning.analysis.heads import align_points
from fna_lightning.analysis.loading import load
from fna_lightning.analysis.measurements import (
    PROBABILITIES,
    Tick,
    ablation_report,
    length_report,
    no_tick,
    split_summary,
    study_lengths,
)
from fna_lightning.analysis.models import Example, StudiedModel, UserInputs, a_model
from fna_lightning.analysis.report import (
    AblationReport,
    ExampleReport,
    LengthReport,
    Report,
    SplitReport,
)
from fna_lightning.errors import UsageError
from fna_lightning.graph.ablation import KINDS
from fna_lightning.version import VERSION

# default number of examples of a split
COUNT = 100

# starts a progress bar with a description and a total, and returns the function that advances it
Track = Callable[[str, int], Tick]


def study(
    model: str | Path | nn.Module | StudiedModel,
    *,
    against: Sequence[str | Path | nn.Module | StudiedModel] = (),
    texts: Sequence[str] = (),
    images: Sequence[str | Path | Tensor] = (),
    sources: Sequence[str] = (),
    points: Any = None,
    batch: Any = None,
    tokenizer: Any = None,
    split: str | None = None,
    count: int | None = None,
    depth: int = 3,
    max_length: int = 128,
    seed: int = 0,
    trust: bool = False,
    track: Track = lambda description, total: no_tick,
) -> Report:
    """Return the study of a model's attention as a graph.

    Which argument holds the examples depends on the model; see ``load`` for the models.

    Args:
        model: a run folder, a checkpoint, ``"hf:FOLDER"``, a module, or a result of ``load``.
        against: other models with the same tokens, to compare with.
        texts: texts for a text model.
        images: image files, or (C, S, S) uint8 tensors, for an image model.
        sources: texts to be translated, for a translation model.
        points: measured points for a field model: rows of coordinates and a value, or a CSV file.
        batch: input of any other module: a tensor, a tuple of arguments or a dictionary of keyword arguments. Its rows
            are the examples; an "attention_mask" marks padding.
        tokenizer: tokenizer of a transformers model.
        split: "train", "val" or "test" of the run's data, whose examples follow those above; default: "val" if there
            are no other examples or if there is a ``count``.
        count: number of examples of the split; default: 100.
        depth: number of examples of the split whose matrices are kept for page and figures. The matrices of the user's
            examples are always kept.
        max_length: largest number of tokens of a text.
        seed: seed of the ablation.
        trust: whether the checkpoints and their run folders may name any function or class.
        track: starts a progress bar: called with a description and a total, returns the function that advances it.
    """
    split = split or (None if count is None else "val")
    count = COUNT if count is None else count
    _check_numbers(count=count, depth=depth, max_length=max_length)
    inputs = UserInputs(_listed(texts, "texts"), _listed(images, "images"), _listed(sources, "sources"), points, batch)
    origins = (model, *against)
    if tokenizer is not None and not any(isinstance(source, nn.Module) for source in origins):
        raise UsageError("a tokenizer goes with a transformers model, not with a path; leave out tokenizer=")
    models = check_comparable([_opened(source, tokenizer, trust) for source in origins])
    first = models[0]
    first.check_inputs(inputs)
    split = split or (None if inputs.kinds else "val")
    own = first.examples(inputs, max_length)
    sampled = first.split_examples(split, count, max_length) if split else []
    parts = _Parts(models, own, sampled, split, track)
    if isinstance(first, FieldModel):
        parts.measure_fields([other for other in models if isinstance(other, FieldModel)], count)
    else:
        parts.measure_tokens(depth, max_length, seed)
    return Report(
        title="Attention as a graph: " + " against ".join(other.label for other in models),
        kind=first.kind,
        unit=first.unit,
        version=VERSION,
        max_length=max_length,
        seed=seed,
        models=[other.info(parts.layers(place)) for place, other in enumerate(models)],
        examples=parts.examples,
        split=parts.overall,
        ablation=parts.ablation,
        lengths=parts.lengths,
    )


@dataclass
class _Parts:
    """The parts of a report while they are computed."""

    models: list[StudiedModel]
    own: list[Example]
    sampled: list[Example]
    split: str | None
    track: Track
    examples: list[ExampleReport] = field(default_factory=list)
    overall: SplitReport | None = None
    ablation: list[AblationReport] = field(default_factory=list)
    lengths: list[LengthReport] = field(default_factory=list)

    def measure_tokens(self, depth: int, max_length: int, seed: int) -> None:
        """Measure models of token sequences: every example, the split, ablation, and measures against length."""
        self._measure_examples(len(self.own) + depth)
        everything = self.sampled or self.own
        tick = self.track("ablation", len(KINDS) * len(PROBABILITIES) * len(self.models))
        reports = [ablation_report(model, everything, seed, tick, sampled=bool(self.sampled)) for model in self.models]
        known = [report for report in reports if report is not None]
        self.ablation = known if len(known) == len(reports) else []
        lengths = study_lengths(everything, max_length) if self.models[0].truncatable else []
        tick = self.track("measures against length", len(lengths) * len(self.models))
        self.lengths = [length_report(model, everything, lengths, tick) for model in self.models]

    def measure_fields(self, models: Sequence[FieldModel], count: int) -> None:
        """Measure field models: one episode of every evaluation set, and the neighbors over many episodes."""
        self._measure_examples(len(self.own) + len(self.sampled))
        if self.split:
            sets = len(self.sampled)
            tick = self.track("evaluation sets", sets * len(models))
            self.overall = neighbor_summary(models, self.split, count, tick)
            self.lengths = [field_lengths(heads) for heads in self.overall.models]

    def layers(self, place: int) -> list[str]:
        """Return the names of the attention layers of the model at ``place``, in their order."""
        reports = [example.models[place] for example in self.examples]
        names = [[*(head.layer for head in report.heads), *(head.layer for head in report.cross)] for report in reports]
        return list(dict.fromkeys(itertools.chain.from_iterable(names)))

    def _measure_examples(self, stored_count: int) -> None:
        """Measure all examples, those of the user first, and keep the matrices of the first ``stored_count``."""
        first = self.models[0]
        tick = self.track("examples", len(self.own) + len(self.sampled))
        split_start = 0
        for number, example in enumerate([*self.own, *self.sampled]):
            if number == len(self.own):
                split_start = len(self.examples)
            stored = number < stored_count
            for view in first.views(example):
                reports = align_points([view.measure(model, stored) for model in self.models])
                extra = {name: value for name, value in view.extra.items() if stored or not isinstance(value, Tensor)}
                report = ExampleReport(
                    view.title, view.words, view.label, reports, stored, truncated=example.truncated, **extra
                )
                self.examples.append(report)
            tick()
        if self.split:
            of_split = self.examples[split_start:]
            summaries = [
                split_summary(example.models[place] for example in of_split) for place in range(len(self.models))
            ]
            self.overall = SplitReport(self.split, len(self.sampled), summaries)


def check_comparable(models: Sequence[StudiedModel]) -> list[StudiedModel]:
    """Return the models with unique labels; models with different tokens are an error."""
    first = models[0]
    for other in models[1:]:
        if other.kind != first.kind:
            raise UsageError(
                f"{other.path} is {a_model(other.kind)} and the first is {a_model(first.kind)}, so they cannot be "
                "compared; analyze them one by one"
            )
        if type(other) is not type(first) or other.comparable_key != first.comparable_key:
            raise UsageError(
                f"{other.path} has different tokens from {first.path}, so they cannot be compared token by token; "
                "analyze them one by one"
            )
    if len({model.label for model in models}) == len(models):
        return list(models)
    return [replace(model, label=f"{model.label} ({number})") for number, model in enumerate(models, start=1)]


def _opened(source: str | Path | nn.Module | StudiedModel, tokenizer: Any, trust: bool) -> StudiedModel:
    """Return a model as ``load`` returns it; a tokenizer is for the modules among the models."""
    if isinstance(source, StudiedModel):
        return source
    return load(source, tokenizer=tokenizer if isinstance(source, nn.Module) else None, trust=trust)


def _listed(values: Any, name: str) -> Sequence[Any]:
    """Return a list of examples; a single string is an error, because it would be taken for a list of letters."""
    if isinstance(values, str | Path):
        raise UsageError(f"{name} must be a list, got the single value {str(values)!r}; pass {name}=[...]")
    allowed, kinds = ((str, Path, Tensor), "files or tensors") if name == "images" else (str, "strings")
    if wrong := [value for value in values if not isinstance(value, allowed)]:
        raise UsageError(f"{name} must be a list of {kinds}, got {wrong[0]!r} in it; pass {name}=[...]")
    return list(values)


def _check_numbers(*, count: int, depth: int, max_length: int) -> None:
    for name, value, least in (("count", count, 1), ("depth", depth, 0), ("max_length", max_length, 2)):
        if value < least:
            raise UsageError(f"{name} must be at least {least}, got {value}")
