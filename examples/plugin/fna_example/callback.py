"""Example of a callback: any Lightning callback works."""

import lightning as L


class Curve(L.Callback):
    """Prints the validation accuracy as a line of bars, one per validation."""

    bars = "▁▂▃▄▅▆▇█"

    def __init__(self) -> None:
        self.values: list[float] = []

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        value = trainer.callback_metrics.get("val/accuracy")
        if value is not None and not trainer.sanity_checking:
            self.values.append(float(value))

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        line = "".join(self.bars[min(7, int(8 * value))] for value in self.values)
        trainer.print(f"accuracy {line} {self.values[-1]:.3f}" if self.values else "accuracy: no validation")
