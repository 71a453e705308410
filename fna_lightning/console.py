"""The console tables are printed on."""

from rich.console import Console

# a pipe or a log file has no width of its own, and a table cut to rich's default of 80 loses its numbers
NARROWEST = 140


def wide_console() -> Console:
    """Return a console that never breaks a line of a table of numbers outside a terminal."""
    console = Console(soft_wrap=True)
    return console if console.is_terminal else Console(soft_wrap=True, width=max(NARROWEST, console.width))
