"""The one entry point, ``fna-lightning``: Lightning's verbs and ours."""

import argparse
import importlib
import logging
import os
import signal
import sys
import traceback
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from fna_lightning.output import complain, end_quietly, reader_is_gone, show_any_text
from fna_lightning.stopping import GRACE, Signals, StoppedError, stop_by_signal

if TYPE_CHECKING:
    from fna_lightning.resuming import ResumePoint

TRAINING_VERBS = {
    "fit": "train a model from a configuration",
    "validate": "measure a checkpoint on the validation split",
    "test": "measure a checkpoint on the test split",
    "predict": "write a checkpoint's predictions to a file",
}
# verb: module of fna_lightning.commands with add_arguments(parser) and run(args)
COMMANDS = ("analyze", "bench", "classify", "compare", "export", "list", "reproduce", "resume", "sweep", "translate")
DEBUG_VARIABLE = "FNA_DEBUG"

# true of every run and nothing a user can act on
HIDDEN_WARNINGS = (
    "LeafSpec",
    "Detected pickle protocol",
    "does not have many workers",
    "exists and is not empty",
    "smaller than the logging interval",
    "callbacks used to create the checkpoint need to be provided",
    "custom batch sampler `LengthBatches` for prediction",
    "custom batch sampler `TokenBatches` for prediction",
    "loading a checkpoint outside the 'fit' stage",
)

EPILOG = """examples:
  fna-lightning list                                        what there is to choose from
  fna-lightning fit --config reviews_fna.yaml               train on the embedded reviews
  fna-lightning classify runs/reviews_fna/version_0/checkpoints/best.ckpt "the plot was gripping"
  fna-lightning translate runs/numbers_fna/version_0/checkpoints/best.ckpt < english.txt > german.txt
  fna-lightning fit --config reviews_fna.yaml --model.attention.alpha 1.6 --trainer.max_epochs 2
  fna-lightning resume runs/reviews_fna/version_0           go on exactly where it stopped
  fna-lightning test --config RUN/config.yaml --ckpt_path RUN/checkpoints/best.ckpt
  fna-lightning analyze RUN/checkpoints/best.ckpt           its attention as a graph, on one HTML page
  fna-lightning export RUN/checkpoints/best.ckpt published  a folder others can load, --onnx for other runtimes
"""


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code; a mistake is one sentence, its traceback only with ``--debug``."""
    argv = list(sys.argv[1:] if argv is None else argv)
    try:
        with stop_by_signal() as signals:
            code = run_command(argv, signals)
            # from here on a signal changes the exit code only
            signals.deferred = True
    except StoppedError as stop:
        return 128 + report_stop(stop)
    return signals.exit_code(code)


def run_command(argv: list[str], signals: Signals) -> int:
    """Run one command, report how it ended and return its exit code."""
    debug = "--debug" in argv or bool(os.environ.get(DEBUG_VARIABLE))
    argv = [word for word in argv if word != "--debug"]
    quieten()
    show_any_text()
    try:
        code = dispatch(argv)
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
        from fna_lightning.errors import UsageError
        from fna_lightning.explanations import explain
        from fna_lightning.load_failure import without_advice

        text = " ".join(str(error).split()) if isinstance(error, UsageError) else without_advice(explain(error))
        text = text or type(error).__name__
        hint = "" if debug else " (--debug shows where)"
        complain(f"fna-lightning: error: {text}{hint if not isinstance(error, UsageError) else ''}")
        return 2


def report_stop(stop: StoppedError) -> int:
    """Print one sentence on a command that a signal has stopped and return the number of the signal."""
    interrupted = str(stop) == str(StoppedError(signal.SIGINT))
    print("interrupted" if interrupted else f"fna-lightning: {stop}", file=sys.stderr)  # noqa: T201
    return stop.number


def dispatch(argv: list[str]) -> int:
    """Run the verb that opens ``argv``."""
    from fna_lightning.plugins import load_plugins

    load_plugins()
    verb = argv[0] if argv else "--help"
    if verb in TRAINING_VERBS:
        return train(argv)
    parser = argparse.ArgumentParser(
        "fna-lightning",
        description="Fractional neural attention: train, compare and study models.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    from fna_lightning.version import VERSION

    parser.add_argument("--version", action="version", version=VERSION)
    parser.add_argument("--debug", action="store_true", help=f"show tracebacks (also: {DEBUG_VARIABLE}=1)")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name, what in TRAINING_VERBS.items():
        verbs.add_parser(name, help=what, add_help=False)
    # one command does not wait for what the others import
    names = (verb,) if verb in COMMANDS else COMMANDS
    modules = {name: importlib.import_module(f"fna_lightning.commands.{name}") for name in names}
    for name, module in modules.items():
        what, _, more = (module.__doc__ or "").partition("\n\n")
        command = verbs.add_parser(
            name, help=what, description=what, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        module.add_arguments(command)
    try:
        args = parser.parse_args(argv if argv else ["--help"])
    except SystemExit as stop:
        return int(stop.code or 0)
    return modules[args.verb].run(args)


def train(argv: list[str], resume: "ResumePoint | None" = None) -> int:
    """Run one of Lightning's verbs."""
    from fna_lightning.run_config import TRUST
    from fna_lightning.shipped import config_names, resolve_config_arguments

    trust = TRUST in argv
    argv = resolve_config_arguments([word for word in argv if word != TRUST])
    named = config_names(argv)
    import torch
    from lightning.pytorch.utilities.exceptions import SIGTERMException

    from fna_lightning.allocation import keep_freed_memory
    from fna_lightning.limits import limit_jsonargparse
    from fna_lightning.run_folder import own_run_folder
    from fna_lightning.training_cli import TrainingCLI

    # the gradients of a trained model are so small that their products are denormal, which takes a processor many
    # times as long; threads take this over from the one that makes them, so it comes before any work
    torch.set_flush_denormal(True)
    keep_freed_memory()
    limit_jsonargparse()
    try:
        with stop_by_signal(GRACE), own_run_folder():
            TrainingCLI(argv, run_name(named[0]) if named else "unnamed", resume, trust=trust)
    except SIGTERMException:
        return 128 + signal.SIGTERM
    except SystemExit as stop:
        if reader_is_gone(stop):
            raise
        # Lightning leaves with 1 after Ctrl-C; --help and --print_config leave with 0
        code = stop.code if isinstance(stop.code, int) else 0
        return 128 + signal.SIGINT if code == 1 else code
    finally:
        torch.set_flush_denormal(False)
    return 0


def run_name(config: str) -> str:
    """Return what a run of this configuration file is called; a run's own config.yaml keeps the run's name."""
    path = Path(config).absolute()
    return path.parent.parent.name if path.name == "config.yaml" else path.stem


class CurrentStderr(logging.Handler):
    """Writes to the standard error of the moment, which a program that runs several commands may exchange."""

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=sys.stderr)  # noqa: T201


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


if __name__ == "__main__":
    sys.exit(main())
