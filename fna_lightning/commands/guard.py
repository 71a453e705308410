"""Runs a command: handles signals and closed pipes, and prints errors on one line."""

import logging
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable

from fna_lightning.training.signals import Signals, StoppedError, stop_by_signal
from fna_lightning.utils.output import end_quietly, print_error, reader_is_gone, show_any_text

DEBUG_VARIABLE = "FNA_DEBUG"

# warnings of every run that the user cannot act on
HIDDEN_WARNINGS = (
    "LeafSpec",
    "Detected pickle protocol",
    "does not have many workers",
    "exists and is not empty",
    "smaller than the logging interval",
    "callbacks used to create the checkpoint need to be provided",
    "custom batch sampler `LengthGroupedBatchSampler` for prediction",
    "custom batch sampler `RankBatchSampler` for prediction",
    "custom batch sampler `TokenBatchSampler` for prediction",
    "loading a checkpoint outside the 'fit' stage",
)


def run_guarded(command: Callable[[], int], *, debug: bool = False) -> int:
    """Run a command and return its exit code; an error is printed on one line, with its traceback if ``debug``."""
    try:
        with stop_by_signal() as signals:
            code = _run_command(command, signals, debug or bool(os.environ.get(DEBUG_VARIABLE)))
            # from here on a signal only changes the exit code
            signals.deferred = True
    except StoppedError as stop:
        return 128 + report_stop(stop)
    return signals.exit_code(code)


def _run_command(command: Callable[[], int], signals: Signals, debug: bool) -> int:
    """Run a command, print why it failed and return its exit code."""
    configure_output()
    show_any_text()
    try:
        code = command()
        # flush here, because an error at the end of the interpreter could not be reported
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        # raised by a library, or by its own signal handler
        return 128 + report_stop(StoppedError(signal.SIGINT))
    except StoppedError as stop:
        return 128 + report_stop(stop)
    except SystemExit as stop:
        if reader_is_gone(stop):
            return end_quietly()
        raise
    except Exception as error:
        if signals.number and not signals.deferred:
            # a library may turn the exception of our signal handler into one of its own errors
            return 128 + report_stop(StoppedError(signals.number))
        if reader_is_gone(error):
            return end_quietly()
        if debug:
            traceback.print_exc()
        from fna_lightning.checkpoints.load_failure import without_advice
        from fna_lightning.config.messages import explain
        from fna_lightning.errors import UsageError, one_line

        if isinstance(error, UsageError):
            text, hint = one_line(error), ""
        else:
            text = without_advice(explain(error)) or type(error).__name__
            hint = "" if debug else " (--debug shows where)"
        print_error(f"fna-lightning: error: {text}{hint}")
        return 2


def report_stop(stop: StoppedError) -> int:
    """Print that a signal has stopped the command, and return the number of the signal."""
    interrupted = str(stop) == str(StoppedError(signal.SIGINT))
    print("interrupted" if interrupted else f"fna-lightning: {stop}", file=sys.stderr)
    return stop.number


class CurrentStderrHandler(logging.Handler):
    """Log handler that looks up sys.stderr for each record, because tests and embedding programs replace it."""

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=sys.stderr)


def configure_output() -> None:
    """Show the log of this package, and hide warnings and log messages that the user cannot act on."""
    for message in HIDDEN_WARNINGS:
        warnings.filterwarnings("ignore", message=f".*{message}.*")
    log = logging.getLogger("fna_lightning")
    if not log.handlers:
        log.addHandler(CurrentStderrHandler())
    log.setLevel(logging.INFO if not int(os.environ.get("LOCAL_RANK", "0")) else logging.WARNING)
    # sacrebleu repeats this advice for every sentence, but the score of the paper is defined without it
    logging.getLogger("sacrebleu").addFilter(lambda record: "effective_order" not in str(record.msg))
    logging.getLogger("lightning.pytorch.utilities.rank_zero").addFilter(
        lambda record: not str(record.msg).startswith(("💡", "TPU available", "Trainer already configured with model"))
    )
