"""What a batch means: each task with its data. Importing this registers them for the command line."""

from fna_lightning.tasks.augmentation import Crop, Erase, Flip, ResizedCrop
from fna_lightning.tasks.auto_augmentation import RandAugment, TrivialAugment
from fna_lightning.tasks.cifar10 import Cifar10Data
from fna_lightning.tasks.digits import DigitsData
from fna_lightning.tasks.image_classification import ImageClassification
from fna_lightning.tasks.imdb import ImdbData
from fna_lightning.tasks.mixing import CutMix, MixUp
from fna_lightning.tasks.multi30k import Multi30kData
from fna_lightning.tasks.numbers import NumberData
from fna_lightning.tasks.reviews import ReviewData
from fna_lightning.tasks.text_classification import TextClassification
from fna_lightning.tasks.translation import Translation

__all__ = [
    "Cifar10Data",
    "Crop",
    "CutMix",
    "DigitsData",
    "Erase",
    "Flip",
    "ImageClassification",
    "ImdbData",
    "MixUp",
    "Multi30kData",
    "NumberData",
    "RandAugment",
    "ResizedCrop",
    "ReviewData",
    "TextClassification",
    "Translation",
    "TrivialAugment",
]
