"""The console for tables, and the progress bar."""

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

# columns of a pipe or a log file; rich's default of 80 would truncate the numbers of a table
MIN_WIDTH = 140


def wide_console() -> Console:
    """Return a console that is wide enough for tables of numbers when the output is not a terminal."""
    console = Console(soft_wrap=True)
    return console if console.is_terminal else Console(soft_wrap=True, width=max(MIN_WIDTH, console.width))


def progress_bar(console: Console) -> Progress:
    """Return a progress bar with counts, elapsed time and remaining time."""
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    return Progress(TextColumn("{task.description}"), *columns, console=console)
