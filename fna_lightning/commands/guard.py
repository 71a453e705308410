"""Running a command: signals, output that is no longer read, and errors as one line."""

import logging
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable

from fna_lightning.training.signals import Signals, StoppedError, stop_by_signal
from fna_lightning.utils.output import complain, end_quietly, reader_is_gone, show_any_text

DEBUG_VARIABLE = "FNA_DEBUG"

# true of every run and nothing a user can act on
HIDDEN_WARNINGS = (
    "LeafSpec",
    "Detected pickle protocol",
    "does not have many workers",
    "exists and is not empty",
    "smaller than the logging interval",
    "callbacks used to create the checkpoint need to be provided",
    "custom batch sampler `LengthGroupedBatchSampler` for prediction",
    "custom batch sampler `TokenBatchSampler` for prediction",
    "loading a checkpoint outside the 'fit' stage",
)


def run_guarded(command: Callable[[], int], *, debug: bool = False) -> int:
    """Run a command and return its exit code; an error is printed as one line, with its traceback if ``debug``."""
    try:
        with stop_by_signal() as signals:
            code = _run_command(command, signals, debug or bool(os.environ.get(DEBUG_VARIABLE)))
            # from here on a signal changes the exit code only
            signals.deferred = True
    except StoppedError as stop:
        return 128 + report_stop(stop)
    return signals.exit_code(code)


def _run_command(command: Callable[[], int], signals: Signals, debug: bool) -> int:
    """Run a command, report how it ended and return its exit code."""
    quieten()
    show_any_text()
    try:
        code = command()
        # here, and not when the interpreter ends, where an error could not be reported
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        # raised by a library, or by a handler of its own
        return 128 + report_stop(StoppedError(signal.SIGINT))
    except StoppedError as stop:
        return 128 + report_stop(stop)
    except SystemExit as stop:
        if reader_is_gone(stop):
            return end_quietly()
        raise
    except Exception as error:
        if signals.number and not signals.deferred:
            # the exception of a signal handler may come out of a library as one of its own errors
            return 128 + report_stop(StoppedError(signals.number))
        if reader_is_gone(error):
            return end_quietly()
        if debug:
            traceback.print_exc()
        from fna_lightning.checkpoints.load_failure import without_advice
        from fna_lightning.config.messages import explain
        from fna_lightning.errors import UsageError

        text = " ".join(str(error).split()) if isinstance(error, UsageError) else without_advice(explain(error))
        text = text or type(error).__name__
        hint = "" if debug else " (--debug shows where)"
        complain(f"fna-lightning: error: {text}{hint if not isinstance(error, UsageError) else ''}")
        return 2


def report_stop(stop: StoppedError) -> int:
    """Print one sentence on a command that a signal has stopped and return the number of the signal."""
    interrupted = str(stop) == str(StoppedError(signal.SIGINT))
    print("interrupted" if interrupted else f"fna-lightning: {stop}", file=sys.stderr)
    return stop.number


class CurrentStderr(logging.Handler):
    """Writes to the standard error of the moment, which a program that runs several commands may exchange."""

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=sys.stderr)


def quieten() -> None:
    """Show our own log and hide what no user can act on."""
    for message in HIDDEN_WARNINGS:
        warnings.filterwarnings("ignore", message=f".*{message}.*")
    log = logging.getLogger("fna_lightning")
    if not log.handlers:
        log.addHandler(CurrentStderr())
    log.setLevel(logging.INFO if not int(os.environ.get("LOCAL_RANK", "0")) else logging.WARNING)
    logging.getLogger("lightning.pytorch.utilities.rank_zero").addFilter(
        lambda record: not str(record.msg).startswith(("💡", "TPU available"))
    )
