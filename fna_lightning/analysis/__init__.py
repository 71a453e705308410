"""The study of a model's attention as a graph: typed results, figures and the HTML page.

Example::

    from fna_lightning.analysis import study

    report = study("runs/reviews_fna/version_0", texts=["the plot was gripping"])
    gaps = [head.measures["spectral_gap"] for head in report.examples[0].models[0].heads]
    report.to_html("study.html")
"""

from fna_lightning.analysis.loading import load
from fna_lightning.analysis.report import Report
from fna_lightning.analysis.study_models import study

__all__ = ["Report", "load", "study"]
