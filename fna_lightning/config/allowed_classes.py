"""The classes that an untrusted file may name: a checkpoint, an exported folder or the config.yaml of a run."""

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

# classes that configurations may name, besides those exported by the registered packages
OUR_CLASSES = (
    "tasks.translation.decoding.Decoding",
    "training.fsdp.FullySharded",
    "training.muon.MuonAdamW",
    "training.schedules.InverseSqrt",
    "training.schedules.WarmupCosine",
    "tasks.data.tokenization.Tokenization",
)

# base classes of the plug-in classes that a configuration may name
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

# parts of a trainer that do not run, import or unpickle anything named by their arguments; not in the list are
# LambdaCallback, which runs its arguments, and strategies and CheckpointIO classes that may unpickle
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
    """Looks up classes by every path from which they can be imported, and by bare name.

    Args:
        homes: module to import each class from; of two classes with the same bare name, the first is found.
    """

    def __init__(self, homes: dict[type, str]) -> None:
        self.homes = homes
        self._by_path: dict[str, type] = {}
        self._by_name: dict[str, list[type]] = {}
        for cls, home in homes.items():
            self._by_name.setdefault(cls.__name__, []).append(cls)
            for path in _paths(cls, home):
                self._by_path[path] = cls

    def find(self, name: str, bases: Iterable[type] = ()) -> type | None:
        """Return the class of this name, or None; for a bare name, subclasses of ``bases`` come first."""
        if "." in name:
            return self._by_path.get(name)
        classes = self._by_name.get(name, [])
        expected = tuple(bases)
        matching = [cls for cls in classes if issubclass(cls, expected)]
        return next(iter([*matching, *classes]), None)

    def path(self, cls: type) -> str:
        """Return the dotted path to import the class from."""
        return f"{self.homes[cls]}.{cls.__name__}"


@cache
def model_classes() -> ClassTable:
    """Return the classes allowed in a model, its data module, optimizer and learning rate schedule."""
    optimizers = _exported("torch.optim", torch.optim.__all__, Optimizer)
    schedules = _exported("torch.optim.lr_scheduler", torch.optim.lr_scheduler.__all__, LRScheduler)
    layers = _exported("torch.nn", TORCH_MODULES, nn.Module)
    # Lightning's own class, with the metric that it monitors
    plateau = _exported("lightning.pytorch.cli", ("ReduceLROnPlateau",), LRScheduler)
    return ClassTable({**_our_classes(), **optimizers, **schedules, **plateau, **layers, **_plugin_classes()})


@cache
def trainer_classes() -> ClassTable:
    """Return the classes allowed in the settings of a trainer."""
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
    """Return the classes of each plug-in: defined in its imported modules, or listed in ``__all__`` of its module."""
    homes: dict[type, str] = {}
    for plugin in load_plugins():
        if plugin.problem is not None:
            continue
        name = plugin.module
        for module in [module for module in sys.modules if module == name or module.startswith(f"{name}.")]:
            content = vars(sys.modules[module])
            defined = [value for value in content.values() if getattr(value, "__module__", None) == module]
            homes |= {cls: module for cls in defined if _is_plugin_class(cls)}
        exported = _exported(name, getattr(sys.modules[name], "__all__", ()), object)
        homes |= {cls: home for cls, home in exported.items() if _is_plugin_class(cls)}
    return homes


def _is_plugin_class(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, PLUGIN_BASES) and value not in PLUGIN_BASES


def _exported(module: str, names: Iterable[str], base: type) -> dict[type, str]:
    """Return the classes among ``names`` of a module that extend ``base``; names that it does not have are ignored."""
    content = vars(importlib.import_module(module))
    values = [content[name] for name in names if name in content]
    return {cls: module for cls in values if inspect.isclass(cls) and issubclass(cls, base) and cls is not base}


def _paths(cls: type, home: str) -> Iterable[str]:
    """Yield the import paths of a class: its home, its module, and every parent package that exports it."""
    yield f"{home}.{cls.__name__}"
    for start in (home, cls.__module__):
        package = start
        while package:
            if getattr(sys.modules.get(package), cls.__name__, None) is cls:
                yield f"{package}.{cls.__name__}"
            package = package.rpartition(".")[0]
