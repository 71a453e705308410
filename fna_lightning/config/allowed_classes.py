"""The classes that a file may name although nobody knows who wrote the file."""

import importlib
import inspect
import sys
from collections.abc import Iterable
from functools import cache
from typing import Any

import lightning as L
import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from fna_lightning.config.plugins import load_plugins
from fna_lightning.config.registry import PACKAGES

# classes that configurations may name beside those that the registered packages export
OUR_CLASSES = (
    "tasks.translation.decoding.Decoding",
    "training.fsdp.FullySharded",
    "training.schedules.InverseSqrt",
    "training.schedules.WarmupCosine",
    "tasks.data.tokenization.Tokenization",
)

# what a plug-in may bring along; any other class in its modules is not meant for configurations
PLUGIN_BASES = (nn.Module, L.LightningDataModule, L.Callback, Optimizer, LRScheduler)

# layers without a parameter that takes a function
TORCH_MODULES = (
    "AdaptiveAvgPool2d",
    "AvgPool2d",
    "BatchNorm1d",
    "BatchNorm2d",
    "Conv1d",
    "Conv2d",
    "Dropout",
    "ELU",
    "Embedding",
    "Flatten",
    "GELU",
    "GroupNorm",
    "Hardswish",
    "Identity",
    "LayerNorm",
    "LeakyReLU",
    "Linear",
    "MaxPool2d",
    "Mish",
    "PReLU",
    "RMSNorm",
    "ReLU",
    "SiLU",
    "Sigmoid",
    "Softplus",
    "Tanh",
)

# parts of a trainer that do not run, import or unpickle anything their arguments name; a CheckpointIO or a strategy
# that reads checkpoints in a way of its own could unpickle, LambdaCallback runs its arguments
LIGHTNING_CLASSES = {
    "lightning.pytorch.callbacks": (
        "DeviceStatsMonitor",
        "EMAWeightAveraging",
        "EarlyStopping",
        "GradientAccumulationScheduler",
        "LearningRateMonitor",
        "ModelCheckpoint",
        "ModelSummary",
        "OnExceptionCheckpoint",
        "RichModelSummary",
        "RichProgressBar",
        "StochasticWeightAveraging",
        "TQDMProgressBar",
        "Timer",
        "WeightAveraging",
    ),
    "lightning.pytorch.callbacks.progress.rich_progress": ("RichProgressBarTheme",),
    "lightning.pytorch.loggers": ("CSVLogger", "TensorBoardLogger"),
    "lightning.pytorch.plugins.environments": ("LightningEnvironment", "SLURMEnvironment", "TorchElasticEnvironment"),
    "lightning.pytorch.profilers": ("AdvancedProfiler", "PassThroughProfiler", "SimpleProfiler"),
    "lightning.pytorch.strategies": ("DDPStrategy", "SingleDeviceStrategy"),
}


class ClassTable:
    """Classes by every name under which they can be imported, and by their bare name.

    Args:
        homes: each class with the module that it is imported from; of two with one bare name, the first one counts.
    """

    def __init__(self, homes: dict[type, str]) -> None:
        self.homes = homes
        self._by_path: dict[str, type] = {}
        self._by_name: dict[str, list[type]] = {}
        for kind, home in homes.items():
            self._by_name.setdefault(kind.__name__, []).append(kind)
            for path in _paths(kind, home):
                self._by_path[path] = kind

    def find(self, name: str, bases: Iterable[type] = ()) -> type | None:
        """Return the class of this name; a bare name means a subclass of ``bases`` before any other."""
        if "." in name:
            return self._by_path.get(name)
        kinds = self._by_name.get(name, [])
        expected = tuple(bases)
        fitting = [kind for kind in kinds if issubclass(kind, expected)]
        return next(iter([*fitting, *kinds]), None)

    def path(self, kind: type) -> str:
        """Return the dotted path that imports the class."""
        return f"{self.homes[kind]}.{kind.__name__}"


@cache
def model_classes() -> ClassTable:
    """Return what a model, its data and its optimisation may be made of."""
    optimizers = _exported("torch.optim", torch.optim.__all__, Optimizer)
    schedules = _exported("torch.optim.lr_scheduler", torch.optim.lr_scheduler.__all__, LRScheduler)
    layers = _exported("torch.nn", TORCH_MODULES, nn.Module)
    # Lightning's own variant, which knows what it monitors
    plateau = _exported("lightning.pytorch.cli", ("ReduceLROnPlateau",), LRScheduler)
    return ClassTable({**_our_classes(), **optimizers, **schedules, **plateau, **layers, **_plugin_classes()})


@cache
def trainer_classes() -> ClassTable:
    """Return what a trainer may be made of."""
    homes = _our_classes()
    for module, names in LIGHTNING_CLASSES.items():
        homes |= _exported(module, names, object)
    return ClassTable({**homes, **_plugin_classes()})


def _our_classes() -> dict[type, str]:
    homes: dict[type, str] = {}
    for package in PACKAGES:
        module = importlib.import_module(f"fna_lightning.{package}")
        homes |= _exported(module.__name__, module.__all__, object)
    for path in OUR_CLASSES:
        module_name, _, name = f"fna_lightning.{path}".rpartition(".")
        homes |= _exported(module_name, (name,), object)
    return homes


def _plugin_classes() -> dict[type, str]:
    """Return the classes of plug-ins: those defined in its imported modules, and those in ``__all__`` of its module."""
    homes: dict[type, str] = {}
    for plugin in load_plugins():
        if plugin.problem is not None:
            continue
        name = plugin.module
        for module in [module for module in sys.modules if module == name or module.startswith(f"{name}.")]:
            content = vars(sys.modules[module])
            defined = [value for value in content.values() if getattr(value, "__module__", None) == module]
            homes |= {kind: module for kind in defined if _is_plugin_class(kind)}
        exported = _exported(name, getattr(sys.modules[name], "__all__", ()), object)
        homes |= {kind: home for kind, home in exported.items() if _is_plugin_class(kind)}
    return homes


def _is_plugin_class(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, PLUGIN_BASES) and value not in PLUGIN_BASES


def _exported(module: str, names: Iterable[str], base: type) -> dict[type, str]:
    """Return the classes among ``names`` of a module that extend ``base``; a name it does not have is left out."""
    content = vars(importlib.import_module(module))
    kinds = [content[name] for name in names if name in content]
    return {kind: module for kind in kinds if inspect.isclass(kind) and issubclass(kind, base) and kind is not base}


def _paths(kind: type, home: str) -> Iterable[str]:
    """Yield the paths of a class: where it is defined, its home, and every package above that exports it."""
    yield f"{home}.{kind.__name__}"
    for start in (home, kind.__module__):
        package = start
        while package:
            if getattr(sys.modules.get(package), kind.__name__, None) is kind:
                yield f"{package}.{kind.__name__}"
            package = package.rpartition(".")[0]
