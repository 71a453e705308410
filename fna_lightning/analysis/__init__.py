"""The study of a trained model's attention as a graph: typed results, figures and the HTML page.

Example::

    from fna_lightning.analysis import study

    report = study("best.ckpt", texts=["the plot was gripping"])
    gaps = [head.measures["spectral_gap"] for head in report.examples[0].models[0].heads]
"""

from fna_lightning.analysis.report import Report
from fna_lightning.analysis.study_models import study

__all__ = ["Report", "study"]
