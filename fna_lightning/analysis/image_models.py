"""What is studied: a trained image model, and the images it reads."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fna_lightning.analysis.models import Example, Reading, Subject, run_data
from fna_lightning.errors import UsageError
from fna_lightning.plotting.images import grid_side
from fna_lightning.tasks.image.codec import ImageCodec
from fna_lightning.training.run_folder import run_folder_of


class ImageSubject(Subject):
    """A trained image classifier; its tokens are the patches of a grid, named by row and column."""

    cuts = False

    @classmethod
    def codec_of(cls, checkpoint: dict[str, Any], path: str | Path) -> ImageCodec:
        return ImageCodec.from_checkpoint(checkpoint, path)

    @property
    def reads(self) -> object:
        return self.codec.channels, self.codec.image_size, self.token_names()

    def batch(self, sequences: list[Reading]) -> tuple[Tensor, ...]:
        return (torch.stack(sequences),)

    def token_names(self) -> list[str]:
        """Return what the tokens are called: "CLS" if there is one, then row and column of the patches from 1."""
        codec = self.codec
        blank = torch.zeros(codec.channels, codec.image_size, codec.image_size, dtype=torch.uint8)
        tokens = next(iter(self.maps(blank).values())).weights.size(-1)
        side, first = grid_side(tokens)
        return ["CLS"] * first + [f"{row + 1},{column + 1}" for row in range(side) for column in range(side)]


def given_images(subject: ImageSubject, files: list[str]) -> list[Example]:
    """Return pictures a person named."""
    names = subject.token_names() if files else []
    return [Example(Path(file).name, torch.from_numpy(subject.codec.read(file).copy()), names) for file in files]


def split_images(subject: ImageSubject, split: str, count: int) -> list[Example]:
    """Return ``count`` images spread evenly over a split of the data the run was trained on."""
    folder = run_folder_of(subject.path)
    if folder is None:
        raise UsageError(
            f"{subject.path} lies in no run folder, so its data set is not known; give pictures by --image, or move it "
            "back to RUN/checkpoints beside RUN/config.yaml"
        )
    images = run_data(folder / "config.yaml", trust=subject.trust).split(split)
    count = min(count, len(images))
    names = subject.token_names()
    examples = []
    for index in (place * len(images) // count for place in range(count)):
        pixels, labels = images[index]
        examples.append(Example(f"{split} {index}", pixels[0], names, int(labels[0])))
    return examples
