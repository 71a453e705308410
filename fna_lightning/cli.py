"""The command ``fna-lightning``: Lightning's subcommands and those of this package."""

import argparse
import importlib
import sys

from fna_lightning.commands.guard import DEBUG_VARIABLE, run_guarded
from fna_lightning.commands.train import train
from fna_lightning.training.subcommands import SUBCOMMANDS
from fna_lightning.version import VERSION

# each is a module of fna_lightning.commands with add_arguments(parser) and run(args)
COMMANDS = (
    *("analyze", "bench", "classify", "compare", "demo", "export", "list", "map", "reproduce", "resume", "sweep"),
    "translate",
)

EPILOG = """examples:
  fna-lightning list                                        show attentions, tasks, data sets and configurations
  fna-lightning fit --config reviews_fna.yaml               train on the embedded movie reviews
  fna-lightning fit --config reviews_fna.yaml --alpha 1.6 --epochs 2
  fna-lightning resume runs/reviews_fna/version_0           continue an interrupted run
  fna-lightning test --config RUN/config.yaml --ckpt_path RUN
  fna-lightning classify RUN "the plot was gripping"
  fna-lightning translate RUN < english.txt > german.txt
  fna-lightning map RUN survey.csv                          predict a map from scattered measurements
  fna-lightning analyze RUN                                 study its attention as a graph; writes an HTML page
  fna-lightning export RUN published                        write a folder that others can load

RUN is a run folder, such as runs/reviews_fna/version_0. Each command has its own --help.
"""


def main(argv: list[str] | None = None) -> int:
    """Run a command and return its exit code; errors are printed on one line, with a traceback if ``--debug``."""
    words = list(sys.argv[1:] if argv is None else argv)
    arguments = [word for word in words if word != "--debug"]
    return run_guarded(lambda: dispatch(arguments), debug="--debug" in words)


def dispatch(argv: list[str]) -> int:
    """Run the command that ``argv`` begins with."""
    verb = argv[0] if argv else "--help"
    # importing plug-ins may take seconds, and the help does not depend on them
    if (verb in SUBCOMMANDS or verb in COMMANDS) and not {"--help", "-h"} & {*argv}:
        from fna_lightning.config.plugins import load_plugins

        load_plugins()
    if verb in SUBCOMMANDS:
        return train(argv)
    parser = command_parser(verb)
    try:
        args = parser.parse_args(argv if argv else ["--help"])
    except SystemExit as stop:
        return int(stop.code or 0)
    return importlib.import_module(f"fna_lightning.commands.{args.verb}").run(args)


def command_parser(verb: str) -> argparse.ArgumentParser:
    """Return the parser of the commands; only ``verb`` has arguments."""
    parser = argparse.ArgumentParser(
        "fna-lightning",
        allow_abbrev=False,
        description="Fractional Neural Attention: train, compare and study models.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=VERSION)
    parser.add_argument(
        "--debug", action="store_true", help=f"show the traceback of an error (also {DEBUG_VARIABLE}=1)"
    )
    commands = parser.add_subparsers(title="commands", dest="verb", metavar="COMMAND", required=True)
    for name, summary in SUBCOMMANDS.items():
        commands.add_parser(name, help=summary, add_help=False)
    for name in (verb,) if verb in COMMANDS else COMMANDS:
        # the module of a command imports what its run() needs when it runs, so that the help comes at once
        module = importlib.import_module(f"fna_lightning.commands.{name}")
        summary, _, epilog = (module.__doc__ or "").partition("\n\n")
        command = commands.add_parser(
            name,
            help=summary,
            description=summary,
            epilog=epilog,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name == verb:
            module.add_arguments(command)
    return parser


if __name__ == "__main__":
    sys.exit(main())
