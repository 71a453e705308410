"""Loading of a trained model of any kind, to use or to study it."""

import sys
from pathlib import Path
from typing import Any

from torch import nn

from fna_lightning.analysis.batches import BatchModel
from fna_lightning.analysis.classifiers import ImageModel, TextModel
from fna_lightning.analysis.fields import FieldModel
from fna_lightning.analysis.models import StudiedModel
from fna_lightning.analysis.translation_models import TranslationModel
from fna_lightning.checkpoints.load import read_checkpoint, task_of
from fna_lightning.checkpoints.locate import checkpoint_file
from fna_lightning.config.registry import register_builtins
from fna_lightning.errors import UsageError
from fna_lightning.introspection.maps import attention_layers
from fna_lightning.tasks.data.codec import read_codec
from fna_lightning.training.run_folder import run_folder_of

# the class that studies a model, by the kind of its codec
MODELS: dict[str, type[StudiedModel]] = {
    "text": TextModel,
    "image": ImageModel,
    "translation": TranslationModel,
    "field": FieldModel,
}
# prefix of the folder of a transformers model
HF = "hf:"


def load(model: str | Path | nn.Module, *, tokenizer: Any = None, trust: bool = False) -> StudiedModel:
    """Return a trained model in evaluation mode, on the CPU, for inference and for ``study``.

    The model itself is the attribute ``task``: the LightningModule of a checkpoint, or the module that was passed.
    Loading a file never executes code from it.

    Args:
        model: a run folder, whose best checkpoint is used, a checkpoint of any task, ``"hf:FOLDER"`` of a transformers
            model, or a module: a model of transformers (copied, not changed), a model of timm, or any other module,
            which is studied on a batch.
        tokenizer: tokenizer of a transformers model that reads texts.
        trust: whether to build any function or class that the checkpoint or its run folder names. Set it only if you
            know who wrote the files.

    Example::

        model = load("runs/reviews_fna/version_0")
        model.task.encoder
    """
    if isinstance(model, nn.Module):
        return _load_module(model, tokenizer)
    if not isinstance(model, str | Path):
        raise UsageError(
            f"a model must be a path, 'hf:FOLDER' or a torch.nn.Module, got {type(model).__name__}; pass a run folder "
            "such as 'runs/reviews_fna/version_0'"
        )
    if tokenizer is not None:
        raise UsageError("a tokenizer goes with a transformers model, not with a path; leave out tokenizer=")
    if str(model).startswith(HF):
        from fna_lightning.integrations.hf.reader import open_reader

        reader, codec, folder = open_reader(str(model).removeprefix(HF))
        return TextModel(folder.name, folder, reader, codec)
    return _load_checkpoint(model, trust=trust)


def _load_checkpoint(path: str | Path, *, trust: bool) -> StudiedModel:
    register_builtins()
    path = checkpoint_file(path)
    checkpoint = read_checkpoint(path)
    stored_codec = read_codec(checkpoint.get("codec"), path)
    task = task_of(checkpoint, path, trust=trust)
    if not attention_layers(task):
        raise UsageError(f"{path} has no attention layer, so there is no graph to study; pass another checkpoint")
    run_folder = run_folder_of(path)
    label = run_folder.parent.name if run_folder else path.stem
    if stored_codec.kind not in MODELS:
        raise UsageError(
            f"{path} is {stored_codec.model}, which cannot be studied; pass one of {', '.join(MODELS)} checkpoints"
        )
    return MODELS[stored_codec.kind](label, path, task, stored_codec, trust)


def _load_module(module: nn.Module, tokenizer: Any) -> StudiedModel:
    name = type(module).__name__
    if tokenizer is not None:
        transformers = sys.modules.get("transformers")
        if transformers is None or not isinstance(module, transformers.PreTrainedModel):
            raise UsageError(f"{name} is not a transformers model, so it takes no tokenizer; leave out tokenizer=")
        from fna_lightning.integrations.hf.reader import reader_of

        reader, codec = reader_of(module, tokenizer)
        return TextModel(name, Path(name), reader, codec)
    if type(module).__module__.startswith("timm."):
        from fna_lightning.analysis.timm_models import timm_model

        return timm_model(module)
    return BatchModel(name, Path(name), module, None)
