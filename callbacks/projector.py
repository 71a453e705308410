"""The tokens of a trained model for TensorBoard's Projector: their vectors, and the map of the walk between them."""

import logging
from typing import Any

import lightning as L
import torch
from lightning.pytorch.loggers import TensorBoardLogger
from torch import Tensor

from fna_lightning.attention import MultiheadAttention
from fna_lightning.graph import diffusion_map
from fna_lightning.introspection.maps import attention_layers, evaluating
from fna_lightning.nn.token_table import TokenTable

log = logging.getLogger(__name__)


class Projector(L.Callback):
    """Writes token vectors, and their diffusion map in the first head of the first layer, when training ends.

    It needs a task with a ``TokenTable`` and data with a codec, as text classification has; a failure is reported and
    ends nothing.

    Args:
        tokens: how many token ids are shown, those after padding and unknown; ids are mostly sorted by frequency.
    """

    def __init__(self, tokens: int = 500) -> None:
        if tokens < 5:
            raise ValueError(f"tokens must be at least 5, got {tokens}; fewer make no map")
        self.tokens = tokens

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        boards = [logger for logger in trainer.loggers if isinstance(logger, TensorBoardLogger)]
        if not boards or not trainer.is_global_zero:
            return
        try:
            words, clouds = self._clouds(trainer, pl_module)
            for logger in boards:
                for name, points in clouds.items():
                    logger.experiment.add_embedding(points, words, tag=name, global_step=trainer.global_step)
        except Exception as error:
            log.debug("the projector failed", exc_info=True)
            log.warning("Projector has nothing to show: %s", " ".join(str(error).split()) or type(error).__name__)

    def _clouds(self, trainer: L.Trainer, pl_module: L.LightningModule) -> tuple[list[str], dict[str, Tensor]]:
        codec: Any = getattr(getattr(trainer, "datamodule", None), "codec", None)
        table = next((module for module in pl_module.modules() if isinstance(module, TokenTable)), None)
        if codec is None or table is None:
            raise ValueError("it needs a model with a TokenTable and a data module with a codec")
        ids = list(range(2, min(table.num_embeddings, self.tokens + 2)))
        # the file has one word a line
        words = ["".join(sign if sign.isprintable() else " " for sign in word) for word in codec.words(ids)]
        vectors = table.weight[ids].detach().cpu()
        clouds = {"tokens": vectors}
        layer = next(one for one in attention_layers(pl_module).values() if isinstance(one, MultiheadAttention))
        with torch.no_grad(), evaluating(pl_module):
            q, k, _ = layer.heads(table.weight[ids][None])
            walk = layer.attention.weights(q[:, :1], k[:, :1])[0, 0].cpu()
        try:
            clouds["diffusion_map"] = diffusion_map(walk, components=3, symmetrise=True).coordinates.float()
        except ValueError as reason:
            log.info("Projector shows no diffusion map of the tokens: %s", reason)
        return words, clouds
