"""The study of one or several models: open their checkpoints, measure them, return a report."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from fna_lightning.analysis.classifiers import ImageModel, TextModel
from fna_lightning.analysis.measurements import (
    PROBABILITIES,
    Tick,
    ablation_report,
    align_points,
    growth_lengths,
    growth_report,
    no_tick,
    split_summary,
)
from fna_lightning.analysis.models import StudiedModel
from fna_lightning.analysis.report import ExampleReport, ModelInfo, Report, SplitReport
from fna_lightning.analysis.translation_models import TranslationModel
from fna_lightning.checkpoints.load import read_checkpoint, task_of
from fna_lightning.checkpoints.locate import checkpoint_file
from fna_lightning.config.registry import register_builtins
from fna_lightning.errors import UsageError
from fna_lightning.graph.ablation import KINDS
from fna_lightning.introspection.maps import attention_layers
from fna_lightning.tasks.data.codec import read_codec
from fna_lightning.training.run_folder import run_folder_of
from fna_lightning.version import VERSION

# the class that studies a model, by the kind of its codec
MODELS: dict[str, type[StudiedModel]] = {"text": TextModel, "image": ImageModel, "translation": TranslationModel}
# prefix of the folder of a transformers model
HF = "hf:"
# number of examples of a split that are shown in depth
SHOWN = 3

# starts a progress bar with a description and a total, and returns the function that advances it
Track = Callable[[str, int], Tick]


def open_model(path: str | Path, *, trust: bool = False) -> StudiedModel:
    """Return the model of a checkpoint, or of a transformers folder given as ``hf:FOLDER``.

    Args:
        path: the checkpoint.
        trust: whether the checkpoint and its run folder may name any function or class.
    """
    if str(path).startswith(HF):
        from fna_lightning.integrations.hf.reader import open_reader

        model, codec, folder = open_reader(str(path).removeprefix(HF))
        return TextModel(folder.name, folder, model, codec)
    register_builtins()
    path = checkpoint_file(path)
    checkpoint = read_checkpoint(path)
    stored_codec = read_codec(checkpoint.get("codec"), path)
    task = task_of(checkpoint, path, trust=trust)
    if not attention_layers(task):
        raise UsageError(f"{path} has no attention layer, so there is no graph to study; pass another checkpoint")
    run_folder = run_folder_of(path)
    label = run_folder.parent.name if run_folder else Path(path).stem
    if stored_codec.kind not in MODELS:
        raise UsageError(
            f"{path} is {stored_codec.model}, which cannot be studied; pass one of {', '.join(MODELS)} checkpoints"
        )
    return MODELS[stored_codec.kind](label, Path(path), task, stored_codec, trust)


def check_comparable(models: Sequence[StudiedModel]) -> list[StudiedModel]:
    """Return the models with unique labels; models with different tokens are an error."""
    first = models[0]
    for other in models[1:]:
        if type(other) is not type(first) or other.comparable_key != first.comparable_key:
            raise UsageError(
                f"{other.path} has different tokens from {first.path}, so they cannot be compared token by token; "
                "analyze them one by one"
            )
    if len({model.label for model in models}) == len(models):
        return list(models)
    return [replace(model, label=f"{model.label} ({number})") for number, model in enumerate(models, start=1)]


def study(
    checkpoint: str | Path | StudiedModel,
    *,
    against: Sequence[str | Path | StudiedModel] = (),
    texts: Sequence[str] = (),
    images: Sequence[str] = (),
    split: str | None = None,
    count: int = 100,
    max_length: int = 128,
    seed: int = 0,
    trust: bool = False,
    track: Track = lambda description, total: no_tick,
) -> Report:
    """Return the study of a trained model's attention as a graph.

    Args:
        checkpoint: a checkpoint of any task, ``hf:FOLDER`` of a transformers model, or an opened model.
        against: other models with the same tokens, to compare with.
        texts: texts to study in depth.
        images: image files to study in depth.
        split: "train", "val" or "test" of the run's data; default: "val" if there are no texts or images.
        count: number of examples of the split.
        max_length: largest number of tokens of a text.
        seed: seed of the ablation.
        trust: whether the checkpoints and their run folders may name any function or class.
        track: starts a progress bar.
    """
    opened = [
        model if isinstance(model, StudiedModel) else open_model(model, trust=trust) for model in (checkpoint, *against)
    ]
    models = check_comparable(opened)
    first = models[0]
    split = split or (None if texts or images else "val")
    shown = first.examples(texts, images, max_length)
    many = first.split_examples(split, count, max_length) if split else []
    shown = shown or many[:SHOWN]
    everything = many or shown

    tick = track("examples in depth", len(shown))
    examples: list[ExampleReport] = []
    for example in shown:
        for view in first.views(example):
            reports = align_points([view.measure(model) for model in models])
            examples.append(ExampleReport(view.title, view.words, view.label, reports, view.pixels))
        tick()
    overall = None
    if split:
        tick = track("split", len(many) * len(models))
        overall = SplitReport(split, len(many), [split_summary(model, many, tick) for model in models])
    tick = track("ablation", len(KINDS) * len(PROBABILITIES) * len(models))
    ablation = [ablation_report(model, everything, seed, tick) for model in models]
    lengths = growth_lengths(everything, max_length) if first.truncatable else []
    tick = track("path length", len(lengths) * len(models))
    growth = [growth_report(model, everything, lengths, tick) for model in models]
    return Report(
        title="Attention as a graph: " + " against ".join(model.label for model in models),
        version=VERSION,
        max_length=max_length,
        seed=seed,
        models=[ModelInfo(model.label, model.attention, model.path.name) for model in models],
        examples=examples,
        split=overall,
        ablation=ablation,
        growth=growth,
    )
