"""The console tables are printed on, and the bar of what is done."""

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

# a pipe or a log file has no width of its own, and a table cut to rich's default of 80 loses its numbers
NARROWEST = 140


def wide_console() -> Console:
    """Return a console that never breaks a line of a table of numbers outside a terminal."""
    console = Console(soft_wrap=True)
    return console if console.is_terminal else Console(soft_wrap=True, width=max(NARROWEST, console.width))


def progress_bar(console: Console) -> Progress:
    """Return a bar that counts what is done and says how long the rest will take."""
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    return Progress(TextColumn("{task.description}"), *columns, console=console)
