"""Export of a trained text classifier with ``torch.export`` and ONNX, to run without this package.

Batch size and length are dynamic. Attention is exported as standard operators (see ``attention.kernels``).
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
# dynamic axes of the token ids and of their lengths
DYNAMIC_SHAPES = ({0: Dim.DYNAMIC, 1: Dim.DYNAMIC}, {0: Dim.DYNAMIC})


def export_program(classifier: nn.Module) -> ExportedProgram:
    """Return a text classifier as a program that maps (B, N) token ids and (B,) lengths to (B, C) logits.

    Save it with ``torch.export.save(program, "model.pt2")``; ``torch.export.load("model.pt2").module()`` runs it.
    """
    with _exportable(classifier):
        return torch.export.export(classifier, _example(), dynamic_shapes=DYNAMIC_SHAPES)


def export_onnx(classifier: nn.Module, path: Path) -> None:
    """Write a text classifier as one ONNX file that contains its weights."""
    try:
        import onnxscript  # noqa: F401
    except ModuleNotFoundError as error:
        raise UsageError(
            "ONNX export needs onnxscript, which is not installed; pip install 'fna-lightning[export]'"
        ) from error
    with _exportable(classifier), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            classifier,
            _example(),
            dynamo=True,
            dynamic_shapes=DYNAMIC_SHAPES,
            input_names=list(INPUTS),
            output_names=list(OUTPUTS),
            verbose=False,
        )
    assert program is not None
    program.save(str(path), external_data=False)


def _example() -> tuple[Tensor, Tensor]:
    """Return example inputs; sizes 0 and 1 are avoided because an exporter treats them as constants."""
    return torch.ones(2, 17, dtype=torch.long), torch.tensor([17, 9])


@contextmanager
def _exportable(classifier: nn.Module) -> Iterator[None]:
    """Switch to evaluation mode and to the kernel "auto", which is exported as standard operators."""
    attentions = [(module, module.kernel) for module in classifier.modules() if isinstance(module, Attention)]
    loggers = [(logging.getLogger(name), logging.getLogger(name).level) for name in ("torch.onnx", "onnxscript")]
    with evaluating(classifier), torch.no_grad():
        try:
            for attention, _ in attentions:
                attention.kernel = "auto"
            for logger, _ in loggers:
                logger.setLevel(logging.ERROR)
            yield
        finally:
            for attention, kernel in attentions:
                attention.kernel = kernel
            for logger, level in loggers:
                logger.setLevel(level)
