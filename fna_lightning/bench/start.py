"""CPU time that commands take to start: user and system time of a new process, in seconds.

The times include the Python interpreter and all imports. The minimum over the repeats is reported, because other load
on the machine can only add to it. A first process of each command, which fills the file cache, is not counted.

Examples:
  fna-lightning bench start
  fna-lightning bench start --repeats 10 --json start.json
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from fna_lightning.errors import UsageError

# words after `python -P`; the name is what the table shows
MODULE = ("-m", "fna_lightning.cli")
COMMANDS: dict[str, tuple[str, ...]] = {
    "import fna_lightning": ("-c", "import fna_lightning"),
    "fna-lightning --help": (*MODULE, "--help"),
    "fna-lightning sweep --help": (*MODULE, "sweep", "--help"),
    "fna-lightning list": (*MODULE, "list"),
    "fna-lightning fit --help": (*MODULE, "fit", "--help"),
    "fna-lightning fit --print_config": (*MODULE, "fit", "--config=reviews_fna.yaml", "--print_config"),
    "import torch": ("-c", "import torch"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``bench start``."""
    parser.add_argument("--repeats", type=int, default=3, help="processes per command (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the measurements as JSON")


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    from rich.table import Table

    from fna_lightning.bench.timing import machine
    from fna_lightning.utils.console import wide_console

    if args.repeats < 1:
        raise UsageError(f"--repeats must be at least 1, got {args.repeats}")
    times = measure(args.repeats)
    about = machine("jsonargparse", "lightning", "torchmetrics")
    print(", ".join(f"{name} {value}" for name, value in about.items()))
    table = Table("command", title=f"CPU seconds, minimum of {args.repeats}", title_justify="left")
    table.add_column("seconds", justify="right")
    for name, seconds in times.items():
        table.add_row(name, f"{min(seconds):.2f}")
    wide_console().print(table)
    if args.json:
        rows = [{"command": name, "cpu_seconds": min(seconds), "all": seconds} for name, seconds in times.items()]
        document: dict[str, Any] = {"machine": about, "commands": rows}
        args.json.write_text(json.dumps(document, indent=2) + "\n")
    return 0


def measure(repeats: int) -> dict[str, list[float]]:
    """Return the CPU seconds of each process by command; the commands take turns."""
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for turn in range(repeats + 1):
        for name, words in COMMANDS.items():
            seconds = cpu_seconds([sys.executable, "-P", *words])
            if turn:
                times[name].append(seconds)
    return times


def cpu_seconds(command: list[str]) -> float:
    """Run a command, and return the user and system time of its process and their children."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    with process.stderr as stream:
        output = stream.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        lines = output.strip().splitlines() or ["no output"]
        raise UsageError(f"`{' '.join(command)}` failed with exit code {process.returncode}: {lines[-1]}")
    return usage.ru_utime + usage.ru_stime
