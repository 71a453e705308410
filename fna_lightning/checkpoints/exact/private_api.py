"""Private attributes of Lightning and torchmetrics that this package uses, and a check that they exist."""

from importlib.metadata import version

import lightning as L
from torchmetrics import SumMetric

from fna_lightning.errors import UsageError

# tested versions
TESTED = {"lightning": "2.6.6", "torchmetrics": "1.9.0"}


def check_private_attributes(trainer: L.Trainer) -> None:
    """Raise an error if the installed Lightning or torchmetrics lacks a private attribute that this package uses.

    Without this check, an attribute renamed by a new version could make resumed runs wrong without any message.
    """
    for name in ("_computed", "_defaults", "_reductions", "_update_count"):
        require_attribute(SumMetric(), name, "Metric", "torchmetrics")
    require_attribute(trainer, "_logger_connector", "trainer")
    for name in ("_callback_metrics", "_first_loop_iter"):
        require_attribute(trainer._logger_connector, name, "trainer._logger_connector")
    require_attribute(trainer.fit_loop, "_restarting", "trainer.fit_loop")
    for name in ("_batches_that_stepped", "_restarting", "_results"):
        require_attribute(trainer.fit_loop.epoch_loop, name, "trainer.fit_loop.epoch_loop")


def require_attribute(owner: object, name: str, path: str, library: str = "lightning") -> None:
    """Raise an error if ``owner`` has no attribute ``name``.

    Args:
        owner: object of the library.
        name: name of the attribute.
        path: name of the owner in the error message.
        library: name of the library.
    """
    if not hasattr(owner, name):
        raise UsageError(
            f"this program uses the private attribute {path}.{name}, which {library} {version(library)} does not have; "
            f"install {library}=={TESTED[library]}, the tested version"
        )
