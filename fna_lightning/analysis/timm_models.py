"""Studied vision transformers of timm."""

from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from timm.data.config import resolve_model_data_config
from timm.data.imagenet_info import ImageNetInfo, infer_imagenet_subset
from torch import Tensor, nn

from fna_lightning.analysis.classifiers import ImageModel
from fna_lightning.analysis.models import ModelInput
from fna_lightning.errors import UsageError
from fna_lightning.tasks.image.codec import ImageCodec


class TimmModel(ImageModel):
    """A vision transformer of timm; pixels are normalized as its configuration says."""

    def batch(self, inputs: list[ModelInput]) -> tuple[Tensor, ...]:
        mean, deviation = self.normalization
        return ((torch.stack(inputs).float() / 255.0 - mean) / deviation,)

    @cached_property
    def normalization(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of the (C, 1, 1) channels."""
        settings = resolve_model_data_config(self.task)
        mean, deviation = (torch.tensor(settings[name])[:, None, None] for name in ("mean", "std"))
        return mean, deviation

    @cached_property
    def token_names(self) -> list[str]:
        """The names of the tokens: "CLS" and registers, then row and column of each patch, from 1."""
        task: Any = self.task
        rows, columns = task.patch_embed.grid_size
        prefix = ["CLS", *(f"R{number}" for number in range(1, task.num_prefix_tokens))]
        patches = [f"{row + 1},{column + 1}" for row in range(rows) for column in range(columns)]
        return prefix[: task.num_prefix_tokens] + patches


def timm_model(model: nn.Module) -> TimmModel:
    """Return a vision transformer of timm in evaluation mode, for ``study``."""
    name = type(model).__name__
    task: Any = model.eval()
    patches: Any = getattr(task, "patch_embed", None)
    if not hasattr(patches, "grid_size") or not hasattr(task, "num_prefix_tokens"):
        raise UsageError(
            f"{name} of timm is not a vision transformer with one sequence of patches, so its tokens have no names; "
            "study it on a batch: study(torch.nn.Sequential(model), batch=images)"
        )
    height, width = patches.img_size
    if height != width:
        raise UsageError(f"{name} reads images of {height} x {width} pixels; only square images can be studied")
    classes = int(task.num_classes)
    subset = infer_imagenet_subset(task) if classes else None
    descriptions = ImageNetInfo(subset) if subset else None
    names = [
        descriptions.index_to_description(number) if descriptions else f"class {number}" for number in range(classes)
    ]
    channels = patches.proj.in_channels
    label = getattr(task, "default_cfg", {}).get("architecture") or name
    return TimmModel(label, Path(label), task, ImageCodec(names, channels, height))
