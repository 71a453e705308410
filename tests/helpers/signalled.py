"""Runs a command in which a step of a task sends a signal to its own process.

    python signalled.py training_step 3 15 fit --config reviews_fna.yaml

The third call of ``training_step`` sends signal 15. With 0 instead of 3, no signal is sent.
"""

import os
import sys
from typing import Any

from fna_lightning.cli import main
from fna_lightning.task import Task


def run(hook: str, call: int, number: int, arguments: list[str]) -> int:
    """Run ``fna-lightning`` with ``arguments`` and return its exit code."""
    original = getattr(Task, hook)
    calls = 0

    def step(task: Task, *args: Any) -> Any:
        nonlocal calls
        calls += not task.trainer.sanity_checking
        if calls == call and not task.trainer.sanity_checking:
            os.kill(os.getpid(), number)
        return original(task, *args)

    setattr(Task, hook, step)
    return main(arguments)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]))
