"""The command line ``fna-lightning``: Lightning's verbs and the commands of this package."""

import argparse
import importlib
import sys

from fna_lightning.commands.guard import DEBUG_VARIABLE, run_guarded
from fna_lightning.commands.train import VERBS, train

# verb: module of fna_lightning.commands with add_arguments(parser) and run(args)
COMMANDS = ("analyze", "bench", "classify", "compare", "export", "list", "reproduce", "resume", "sweep", "translate")

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
    """Run one command and return its exit code; an error is one line, its traceback needs ``--debug``."""
    words = list(sys.argv[1:] if argv is None else argv)
    arguments = [word for word in words if word != "--debug"]
    return run_guarded(lambda: dispatch(arguments), debug="--debug" in words)


def dispatch(argv: list[str]) -> int:
    """Run the verb that opens ``argv``."""
    from fna_lightning.config.plugins import load_plugins

    load_plugins()
    verb = argv[0] if argv else "--help"
    if verb in VERBS:
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
    for name, what in VERBS.items():
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


if __name__ == "__main__":
    sys.exit(main())
