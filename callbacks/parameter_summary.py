"""ParameterSummary: the parts of a model and their numbers of parameters."""

from typing import Any

from lightning.pytorch.callbacks import RichModelSummary
from rich import get_console
from rich.table import Table


class ParameterSummary(RichModelSummary):
    """Lightning's model summary without FLOPs.

    Lightning counts the FLOPs of PyTorch's own layers for an example input. It does not see the attention, so the
    column would be zero or wrong.

    Args:
        max_depth: depth of the layers that are listed; 0 for no summary.
    """

    def __init__(self, max_depth: int = 1) -> None:
        super().__init__(max_depth)

    @staticmethod
    def summarize(
        summary_data: list[tuple[str, list[str]]], total_parameters: int, trainable_parameters: int, *_: Any, **__: Any
    ) -> None:
        """Print a table of the layers with parameters."""
        columns = dict(summary_data)
        table = Table("part", "class")
        table.add_column("parameters", justify="right")
        for name, kind, count in zip(columns["Name"], columns["Type"], columns["Params"], strict=True):
            if count.strip() not in ("0", "--"):
                table.add_row(name, kind, count)
        frozen = total_parameters - trainable_parameters
        table.add_row("all", "", f"{total_parameters:,}" + (f", {frozen:,} of them frozen" if frozen else ""))
        get_console().print(table)
