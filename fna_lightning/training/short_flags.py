"""Short flags for the settings that are changed most often, such as ``--alpha`` for ``--model.attention.alpha``.

The long name of a flag depends on the task and its data, so it is looked up in the parsed configuration.
"""

import inspect
from dataclasses import dataclass

from jsonargparse import Namespace

from fna_lightning.attention import Attention
from fna_lightning.config.construction import named_objects
from fna_lightning.config.suggest import imported
from fna_lightning.errors import UsageError
from fna_lightning.training.fit_help import SHORT_FLAGS, TRAINING_ONLY


@dataclass(frozen=True)
class ShortFlag:
    """A short flag on the command line, without its dashes, and its value."""

    name: str
    value: str


def split_short_flags(argv: list[str]) -> tuple[list[str], list[ShortFlag]]:
    """Return the command line without its short flags, and the short flags in their order."""
    words: list[str] = []
    flags: list[ShortFlag] = []
    remaining = iter(argv)
    for word in remaining:
        name, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("--") or name not in SHORT_FLAGS:
            words.append(word)
            continue
        if not equals:
            value = next(remaining, "")
        if not value or value.startswith("--"):
            raise UsageError(f"--{name} needs a value: {SHORT_FLAGS[name][1]}")
        flags.append(ShortFlag(name, value))
    return words, flags


def long_names(flag: str, config: Namespace, verb: str) -> list[str]:
    """Return the dotted names of the settings that a short flag changes.

    Args:
        flag: name of the flag, without its dashes.
        config: parsed configuration of the run.
        verb: "fit", "validate", "test" or "predict".

    Raises:
        UsageError: if the flag does not apply to this configuration or this command.
    """
    if flag in TRAINING_ONLY and verb != "fit":
        raise UsageError(f"--{flag} applies to training only, and {verb} does not train; omit it")
    if flag == "seed":
        return ["seed_everything"]
    if flag == "epochs":
        return ["trainer.max_epochs"]
    if flag == "lr":
        return _learning_rate(config)
    return _batch_size(config) if flag == "batch-size" else _attention_settings(flag, config)


def _attention_settings(flag: str, config: Namespace) -> list[str]:
    """Return the setting in every attention of the model that has it."""
    attentions = [
        (name, class_path.rpartition(".")[2], arguments)
        for name, class_path, arguments in named_objects(config.get("model"), "model")
        if class_path and _is_attention(class_path)
    ]
    names = [f"{name}.{flag}" for name, _, arguments in attentions if flag in arguments]
    if names:
        return names
    if attentions:
        name, cls, _ = attentions[0]
        raise UsageError(f"attention {cls} has no {flag}; omit --{flag}, or add --{name} Fractional")
    raise UsageError(f"{_class_of(config, 'model')} has no setting for its attention, so --{flag} does not apply")


def _is_attention(class_path: str) -> bool:
    cls = imported(class_path)
    return inspect.isclass(cls) and issubclass(cls, Attention)


def _learning_rate(config: Namespace) -> list[str]:
    objects = [
        *named_objects(config.get("model"), "model"),
        *named_objects(config.get("optimizer"), "optimizer"),
    ]
    names = [f"{name}.lr" for name, _, arguments in objects if "lr" in arguments]
    optimizers = [name for name in names if name.endswith("optimizer.lr")]
    if names:
        return [min(optimizers or names, key=lambda name: name.count("."))]
    optimizer = next((path for name, path, _ in objects if path and name.endswith("optimizer")), None)
    owner = f"optimizer {optimizer.rpartition('.')[2]}" if optimizer else _class_of(config, "model")
    raise UsageError(f"{owner} has no learning rate lr, so --lr does not apply")


def _batch_size(config: Namespace) -> list[str]:
    objects = list(named_objects(config.get("data"), "data"))
    cls = _class_of(config, "data")
    for name, _, arguments in objects:
        if arguments.get("batch_tokens") is not None and arguments.get("batch_size") is None:
            raise UsageError(
                f"{cls} fills each batch up to {name}.batch_tokens ({arguments['batch_tokens']}) tokens, so "
                f"--batch-size does not apply; use --{name}.batch_tokens"
            )
    names = [f"{name}.batch_size" for name, _, arguments in objects if "batch_size" in arguments]
    if not names:
        raise UsageError(
            f"{cls} has no batch_size, so --batch-size does not apply; --data.help {cls} shows its settings"
        )
    return [min(names, key=lambda name: name.count("."))]


def _class_of(config: Namespace, section: str) -> str:
    """Return the name of the class of the model or the data."""
    return str(config.get(section, {}).get("class_path", section)).rpartition(".")[2]
