"""Names, examples and help texts of Lightning's subcommands: ``fit``, ``validate``, ``test`` and ``predict``."""

from fna_lightning.errors import UsageError

SUBCOMMANDS = {
    "fit": "Train a model from a configuration.",
    "validate": "Evaluate a checkpoint on the validation split.",
    "test": "Evaluate a checkpoint on the test split.",
    "predict": "Write the predictions of a checkpoint to a CSV file.",
}

_FIT_EXAMPLES = """examples:
  fna-lightning fit --config reviews_fna.yaml
  fna-lightning fit --config reviews_fna.yaml --alpha 1.6 --epochs 2
  fna-lightning fit --config reviews_fna.yaml --model.attention DotProduct --lr 1e-3
  fna-lightning fit --config reviews_fna.yaml --trainer.callbacks+=AttentionEntropy
  fna-lightning fit --config reviews_fna.yaml --print_config     show all settings
  fna-lightning fit --model.help TextClassification              show the settings of a class
"""

_CHECKPOINT_EXAMPLE = """example:
  fna-lightning {name} --config RUN/config.yaml --ckpt_path RUN

RUN is a run folder, such as runs/reviews_fna/version_0. Its best checkpoint is used, or else its last one.
"""


def examples(name: str) -> str:
    """Return the examples of a subcommand."""
    return _FIT_EXAMPLES if name == "fit" else _CHECKPOINT_EXAMPLE.format(name=name)


def help_options(name: str, note: str) -> dict[str, str]:
    """Return the parser arguments that make the help of all settings of a subcommand readable.

    Args:
        name: the subcommand.
        note: text at the end of the help.
    """
    return {
        # the usage that argparse generates lists fifty options
        "usage": f"fna-lightning {name} --config FILE [--SETTING VALUE ...]",
        "description": (
            f"{SUBCOMMANDS[name]}\n\nFILE is a path or the name of a shipped configuration. Every setting in it can be "
            "overridden. --help shows the settings that matter and the short flags."
        ),
        "epilog": f"{examples(name)}\n{note}",
    }


def require_checkpoint(name: str, path: object) -> None:
    """Raise a UsageError if a subcommand that evaluates a model has no checkpoint.

    Args:
        name: the subcommand.
        path: its ``ckpt_path``.
    """
    if name != "fit" and not path:
        raise UsageError(
            f"{name} needs a trained model, and without --ckpt_path the weights would be random; add --ckpt_path "
            "runs/NAME/version_0 (a run folder or a checkpoint)"
        )
