"""Projector: token embeddings and their diffusion map for TensorBoard's Projector tab."""

import logging
from typing import Any

import lightning as L
import torch
from lightning.pytorch.loggers import TensorBoardLogger
from torch import Tensor

from fna_lightning.attention import MultiheadAttention
from fna_lightning.errors import one_line
from fna_lightning.graph import diffusion_map
from fna_lightning.introspection.maps import attention_layers, evaluating
from fna_lightning.nn.token_table import TokenTable

log = logging.getLogger(__name__)


class Projector(L.Callback):
    """Writes token embeddings, and their diffusion map in the first head of the first layer, when training ends.

    Needs a task with a ``TokenTable`` and a data module with a codec, such as text classification. If it fails, it
    logs a warning.

    Args:
        tokens: number of token ids to show, starting after padding and unknown; ids are mostly sorted by frequency.
    """

    def __init__(self, tokens: int = 500) -> None:
        if tokens < 5:
            raise ValueError(f"tokens must be at least 5, got {tokens}; a diffusion map needs them")
        self.tokens = tokens

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        boards = [logger for logger in trainer.loggers if isinstance(logger, TensorBoardLogger)]
        if not boards or not trainer.is_global_zero:
            return
        try:
            words, embeddings = self._embeddings(trainer, pl_module)
            for logger in boards:
                for name, points in embeddings.items():
                    logger.experiment.add_embedding(points, words, tag=name, global_step=trainer.global_step)
        except Exception as error:
            log.debug("the projector failed", exc_info=True)
            log.warning("Projector shows nothing: %s", one_line(error))

    def _embeddings(self, trainer: L.Trainer, pl_module: L.LightningModule) -> tuple[list[str], dict[str, Tensor]]:
        """Return the tokens, and their coordinates by name of the embedding."""
        codec: Any = getattr(getattr(trainer, "datamodule", None), "codec", None)
        table = next((module for module in pl_module.modules() if isinstance(module, TokenTable)), None)
        if codec is None or table is None:
            raise ValueError("Projector needs a model with a TokenTable and a data module with a codec")
        ids = list(range(2, min(table.num_embeddings, self.tokens + 2)))
        # the file has one word per line
        words = ["".join(char if char.isprintable() else " " for char in word) for word in codec.words(ids)]
        embeddings = {"tokens": table.weight[ids].detach().cpu()}
        layers = attention_layers(pl_module).values()
        layer = next(layer for layer in layers if isinstance(layer, MultiheadAttention))
        with torch.no_grad(), evaluating(pl_module):
            q, k, _ = layer.heads(table.weight[ids][None])
            weights = layer.attention.weights(q[:, :1], k[:, :1])[0, 0].cpu()
        try:
            embeddings["diffusion_map"] = diffusion_map(weights, components=3, symmetrise=True).coordinates.float()
        except ValueError as reason:
            log.info("Projector shows no diffusion map of the tokens: %s", reason)
        return words, embeddings
