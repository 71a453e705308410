"""Translation of sentences from one language to another."""

from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from torch import Tensor, nn
from torch.optim import Adam
from torchmetrics import MetricCollection

from fna_lightning.attention import Attention
from fna_lightning.nn import Seq2SeqConfig, linear_cross_entropy
from fna_lightning.search import Hypothesis
from fna_lightning.task import Task
from fna_lightning.tasks.data.metrics import WeightedMean
from fna_lightning.tasks.translation.data import TranslationBatch, TranslationData
from fna_lightning.tasks.translation.decoding import Decoding
from fna_lightning.tasks.translation.scores import Scored, gather, keep_translated, score
from fna_lightning.tasks.translation.translator import translate


class Translation(Task):
    """Translator: a sequence-to-sequence Transformer.

    ``test`` decodes with beam search and writes hypotheses, scores and their signatures into the run folder.
    ``val/nll`` is the loss per token without label smoothing, ``val/token_accuracy`` the share of tokens that are the
    most probable ones given the reference before them.

    Args:
        source_vocab_size: number of token ids of the source; taken from the data.
        target_vocab_size: number of token ids of the target; taken from the data.
        attention: the attention of the encoder, and of the decoder unless ``network.decoder`` names others.
        network: settings of the network.
        label_smoothing: amount of label smoothing in training.
        decoding: settings of beam search.
        bleu_every: decode the validation split greedily every so many epochs of training and after the last one
            (``val/bleu``); 0 for never.
        optimizer: builds the optimizer from the parameters.
        lr_scheduler: builds the learning-rate schedule from the optimizer; None for a constant rate.
    """

    monitor = ("val/nll", "min")

    def __init__(
        self,
        source_vocab_size: int,
        target_vocab_size: int,
        attention: Attention,
        network: Seq2SeqConfig = Seq2SeqConfig(),  # noqa: B008 - frozen
        label_smoothing: float = 0.1,
        decoding: Decoding = Decoding(),  # noqa: B008 - frozen
        bleu_every: int = 0,
        optimizer: OptimizerCallable = Adam,
        lr_scheduler: LRSchedulerCallable | None = None,
    ) -> None:
        # Without groups: torchmetrics would merge two means that are equal after the first batch.
        metrics = MetricCollection({"nll": WeightedMean(), "token_accuracy": WeightedMean()}, compute_groups=False)
        super().__init__(metrics, optimizer, lr_scheduler)
        if not 0.0 <= label_smoothing < 1.0:
            raise ValueError(f"label_smoothing must lie in [0, 1), got {label_smoothing}")
        self.network = network(source_vocab_size, target_vocab_size, attention)
        self.label_smoothing = label_smoothing
        self.decoding = decoding
        self.bleu_every = bleu_every
        # Translations of this process in this epoch.
        self.decoded: list[Scored] = []

    def networks(self) -> list[nn.Module]:
        # The loss and beam search call these, not the forward method of the whole network.
        return [self.network.encoder, self.network.decoder]

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        """Return the (B, N, V) scores of the token after each of the (B, N) tokens of ``target``."""
        return self.network(source, lengths, target)

    def loss(self, batch: TranslationBatch, stage: str) -> Tensor:
        prefix, next_tokens = batch.target[:, :-1], batch.target[:, 1:]
        features = self.network.features(batch.source, batch.source_lengths, prefix)
        # Only real tokens are scored, because scoring takes the largest part of a step.
        features, targets = (x.flatten(0, 1).index_select(0, batch.predicted) for x in (features, next_tokens))
        loss, nll, accuracy = linear_cross_entropy(features, self.network.score_weight, targets, self.label_smoothing)
        metrics, weight = self.stage_metrics(stage), self.loss_weight(batch)
        metrics["nll"].update(nll, weight)
        metrics["token_accuracy"].update(accuracy, weight)
        return loss

    def loss_weight(self, batch: TranslationBatch) -> int:
        """Number of tokens of the target, over which the loss is averaged."""
        return len(batch.predicted)

    def translate(self, batch: TranslationBatch, decoding: Decoding | None = None) -> list[list[Hypothesis]]:
        """Return the best translations of each source, best first."""
        return translate(self.network, batch.source, batch.source_lengths, decoding or self.decoding)

    def validation_step(self, batch: TranslationBatch, batch_idx: int) -> None:
        super().validation_step(batch, batch_idx)
        if self._decodes_validation():
            self._decode(batch, Decoding(beam=1) if self._fitting() else self.decoding)

    def test_step(self, batch: TranslationBatch, batch_idx: int) -> None:
        super().test_step(batch, batch_idx)
        self._decode(batch, self.decoding)

    def on_validation_epoch_end(self) -> None:
        if self._decodes_validation():
            self._score("val", write=not self._fitting())

    def on_test_epoch_end(self) -> None:
        self._score("test", write=True)

    def predict_step(self, batch: TranslationBatch, batch_idx: int) -> dict[str, Any]:
        best = [hypotheses[0] for hypotheses in self.translate(batch)]
        codec = self._data().shared_codec
        return {
            "translation": Texts(codec.decode(hypothesis.tokens) for hypothesis in best),
            "score": torch.tensor([hypothesis.score for hypothesis in best]),
        }

    def probe(self, batch: TranslationBatch, max_length: int | None = None) -> dict[str, Tensor]:
        source, target = batch.source[:, :max_length], batch.target[:, :-1][:, :max_length]
        source_lengths = batch.source_lengths.clamp(max=source.size(1))
        target_lengths = batch.target_lengths.clamp(max=target.size(1))
        self.network.features(source, source_lengths, target)
        return {"network.encoder": source_lengths, "network.decoder": target_lengths}

    def _fitting(self) -> bool:
        return self.trainer.state.fn == "fit"

    def _decodes_validation(self) -> bool:
        """Return whether this validation decodes: every ``bleu_every`` epochs of ``fit``, always in ``validate``."""
        trainer = self.trainer
        if trainer.sanity_checking:
            return False
        if self._fitting():
            epoch = trainer.current_epoch + 1
            # after the last epoch too, because the closing table would otherwise show the BLEU of an earlier one
            return self.bleu_every > 0 and (epoch % self.bleu_every == 0 or epoch == trainer.max_epochs)
        return True

    def _decode(self, batch: TranslationBatch, decoding: Decoding) -> None:
        codec = self._data().shared_codec
        translations = self.translate(batch, decoding)
        teacher_forced = self._teacher_forced(batch)
        for row, index in enumerate(batch.number.tolist()):
            best = translations[row][0]
            forced = codec.decode(teacher_forced[row])
            self.decoded.append(Scored(index, codec.decode(best.tokens), best.score, forced))

    def _teacher_forced(self, batch: TranslationBatch) -> list[list[int]]:
        """Return the most probable token at each position given the reference before it (the paper's "BLEU")."""
        with torch.no_grad():
            scores = self(batch.source, batch.source_lengths, batch.target[:, :-1])
        rows = scores.argmax(dim=-1).tolist()
        return [row[:length] for row, length in zip(rows, batch.target_lengths.tolist(), strict=True)]

    def _score(self, split: str, *, write: bool) -> None:
        decoded = gather(self.decoded)
        self.decoded = []
        sources, references = self._data().texts(split)
        limit = getattr(self.trainer, f"limit_{split}_batches")
        # The integer 1 means one batch, the float 1.0 all batches.
        if isinstance(limit, int) or limit != 1.0:
            decoded, sources, references = keep_translated(decoded, sources, references)
        report = score(decoded, references)
        metrics = report.metrics if write else {"bleu": report.metrics["bleu"]}
        self.log_dict({f"{split}/{name}": value for name, value in metrics.items()})
        if write and self.trainer.is_global_zero and not getattr(self.trainer, "fast_dev_run", False):
            report.write(Path(self.trainer.default_root_dir), split, sources, self.decoding)

    def _data(self) -> TranslationData:
        data = getattr(self.trainer, "datamodule", None)
        if not isinstance(data, TranslationData):
            raise TypeError(
                f"Translation needs a TranslationData, which provides the texts to score, got {type(data).__name__}"
            )
        return data


class Texts(list[str]):
    """Column of texts in a table of predictions, with the ``tolist`` of a tensor."""

    def tolist(self) -> list[str]:
        return list(self)
