"""A trained text classifier as a program that runs without this package: ``torch.export`` and ONNX.

Batch and length stay free. Inside, attention is written with operators every runtime has (see ``attention.kernels``).
"""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from fna_lightning.attention import Attention
from fna_lightning.errors import UsageError
from fna_lightning.introspection.maps import evaluating

INPUTS = ("tokens", "lengths")
OUTPUTS = ("logits",)
# free axes of the token ids and of their lengths
FREE = ({0: Dim.DYNAMIC, 1: Dim.DYNAMIC}, {0: Dim.DYNAMIC})


def export_program(classifier: nn.Module) -> ExportedProgram:
    """Return the program of a text classifier: (B, N) token ids and (B,) lengths to (B, C) logits.

    Save it with ``torch.export.save(program, "model.pt2")``; ``torch.export.load("model.pt2").module()`` runs it.
    """
    with _exportable(classifier):
        return torch.export.export(classifier, _example(), dynamic_shapes=FREE)


def export_onnx(classifier: nn.Module, path: Path) -> None:
    """Write the program of a text classifier as ONNX, all weights in the one file."""
    try:
        import onnxscript  # noqa: F401
    except ModuleNotFoundError as error:
        raise UsageError(
            "ONNX needs onnxscript, which is not installed; pip install 'fna-lightning[export]'"
        ) from error
    with _exportable(classifier), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            classifier,
            _example(),
            dynamo=True,
            dynamic_shapes=FREE,
            input_names=list(INPUTS),
            output_names=list(OUTPUTS),
            verbose=False,
        )
    assert program is not None
    program.save(str(path), external_data=False)


def _example() -> tuple[Tensor, Tensor]:
    """Return inputs of no particular size: neither 0 nor 1, which an exporter takes for constants."""
    return torch.ones(2, 17, dtype=torch.long), torch.tensor([17, 9])


@contextmanager
def _exportable(classifier: nn.Module) -> Iterator[None]:
    """Evaluate, and let every attention choose an operator that other runtimes have."""
    named = [(one, one.kernel) for one in classifier.modules() if isinstance(one, Attention)]
    quiet = [(logging.getLogger(name), logging.getLogger(name).level) for name in ("torch.onnx", "onnxscript")]
    with evaluating(classifier), torch.no_grad():
        try:
            for one, _ in named:
                one.kernel = "auto"
            for logger, _ in quiet:
                logger.setLevel(logging.ERROR)
            yield
        finally:
            for one, kernel in named:
                one.kernel = kernel
            for logger, level in quiet:
                logger.setLevel(level)
