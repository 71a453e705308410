"""What a batch means: each task with its data. Importing this registers them for the command line."""

from fna_lightning.tasks.imdb import ImdbData
from fna_lightning.tasks.reviews import ReviewData
from fna_lightning.tasks.text_classification import TextClassification

__all__ = ["ImdbData", "ReviewData", "TextClassification"]
