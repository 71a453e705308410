"""Example plug-in of fna-lightning. Importing this package registers its classes."""

from fna_example.attention import Cauchy
from fna_example.callback import Curve
from fna_example.data import RepeatData
from fna_example.task import FindRepeat

__all__ = ["Cauchy", "Curve", "FindRepeat", "RepeatData"]
