"""Tasks and their data modules. Importing this package registers them for the command line."""

from fna_lightning.tasks.fields.generated import RoughField, SmoothField
from fna_lightning.tasks.fields.likelihood import CategoricalLikelihood, GaussianLikelihood, SquaredError
from fna_lightning.tasks.fields.pixels import PixelFields
from fna_lightning.tasks.fields.recall import NoisyRecall
from fna_lightning.tasks.fields.scattered import ScatteredFile
from fna_lightning.tasks.fields.task import FieldRegression
from fna_lightning.tasks.fields.terrain import Photographs, Terrain
from fna_lightning.tasks.image.augmentation import (
    AlternatingFlip,
    CutMix,
    MixUp,
    RandAugment,
    RandomCrop,
    RandomErasing,
    RandomHorizontalFlip,
    RandomResizedCrop,
    TrivialAugment,
)
from fna_lightning.tasks.image.cifar10 import Cifar10Data
from fna_lightning.tasks.image.digits import DigitsData
from fna_lightning.tasks.image.hub_images import HubImages
from fna_lightning.tasks.image.image_folder import ImageFolder
from fna_lightning.tasks.image.task import ImageClassification
from fna_lightning.tasks.text.imdb import ImdbData
from fna_lightning.tasks.text.reviews import ReviewData
from fna_lightning.tasks.text.task import TextClassification
from fna_lightning.tasks.text.text_files import TextFiles
from fna_lightning.tasks.translation.multi30k import Multi30kData
from fna_lightning.tasks.translation.numbers import NumberData
from fna_lightning.tasks.translation.parallel_text import ParallelText
from fna_lightning.tasks.translation.task import Translation
from fna_lightning.training import muon, schedules  # noqa: F401 - registers their bare names

__all__ = [
    "AlternatingFlip",
    "CategoricalLikelihood",
    "Cifar10Data",
    "CutMix",
    "DigitsData",
    "FieldRegression",
    "GaussianLikelihood",
    "HubImages",
    "ImageClassification",
    "ImageFolder",
    "ImdbData",
    "MixUp",
    "Multi30kData",
    "NoisyRecall",
    "NumberData",
    "ParallelText",
    "Photographs",
    "PixelFields",
    "RandAugment",
    "RandomCrop",
    "RandomErasing",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "ReviewData",
    "RoughField",
    "ScatteredFile",
    "SmoothField",
    "SquaredError",
    "Terrain",
    "TextClassification",
    "TextFiles",
    "Translation",
    "TrivialAugment",
]
