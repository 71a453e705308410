"""Translation metrics computed with sacrebleu, each with its signature."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from fna_lightning.tasks.translation.decoding import Decoding
from fna_lightning.utils.files import write_text

PAPER = "teacher-forced argmax, mean unsmoothed sentence BLEU, 13a, lower-cased: nothing is decoded"


@dataclass(frozen=True)
class Scored:
    """The outputs of a model for one pair of sentences."""

    index: int  # index of the pair in its split
    hypothesis: str  # translation found by the search
    score: float  # score of the search
    forced: str  # argmax at each position given the reference tokens before it (teacher forcing)


@dataclass(frozen=True)
class Report:
    """The metrics of a split and the sentences they were computed on."""

    metrics: dict[str, float]
    signatures: dict[str, str]
    hypotheses: list[str]
    references: list[str]

    def write(self, folder: Path, split: str, sources: list[str], decoding: Decoding) -> None:
        """Write sources, hypotheses and references, one sentence per line, and the metrics with their signatures."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, lines in (("src", sources), ("hyp", self.hypotheses), ("ref", self.references)):
            text = "".join(f"{' '.join(line.split())}\n" for line in lines)
            write_text(folder / f"{split}.{name}.txt", text)
        content: dict[str, Any] = {
            "split": split,
            "sentences": len(self.references),
            "metrics": self.metrics,
            "signatures": self.signatures,
            "decoding": vars(decoding),
        }
        write_text(folder / f"{split}.scores.json", json.dumps(content, indent=2) + "\n")


def gather(translations: list[Scored]) -> list[Scored]:
    """Return the translations of all processes."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return translations
    parts: list[list[Scored]] = [[] for _ in range(torch.distributed.get_world_size())]
    torch.distributed.all_gather_object(parts, translations)
    return [translation for part in parts for translation in part]


def keep_translated(
    translations: list[Scored], sources: list[str], references: list[str]
) -> tuple[list[Scored], list[str], list[str]]:
    """Return the translations, sources and references of the pairs that were translated, numbered from 0.

    An evaluation with a limit on its batches translates only some pairs of its split.
    """
    indices = sorted({translation.index for translation in translations})
    numbers = {index: number for number, index in enumerate(indices)}
    renumbered = [replace(translation, index=numbers[translation.index]) for translation in translations]
    return renumbered, [sources[index] for index in indices], [references[index] for index in indices]


def score(translations: list[Scored], references: list[str]) -> Report:
    """Return the metrics of translations; there must be exactly one translation per reference."""
    by_index = {translation.index: translation for translation in translations}
    if len(translations) != len(references) or sorted(by_index) != list(range(len(references))):
        raise RuntimeError(
            f"every sentence must be translated once: there are {len(references)} references, {len(translations)} "
            f"translations of {len(by_index)} different sentences; give every process its share of the split"
        )
    ordered = [by_index[index] for index in range(len(references))]
    hypotheses = [translation.hypothesis for translation in ordered]
    sacrebleu_metrics: dict[str, BLEU | CHRF | TER] = {
        "bleu": BLEU(),
        "bleu_lowercase": BLEU(lowercase=True),
        "chrf": CHRF(),
        "ter": TER(),
    }
    metrics: dict[str, float] = {}
    signatures: dict[str, str] = {}
    for name, metric in sacrebleu_metrics.items():
        metrics[name] = metric.corpus_score(hypotheses, [references]).score
        signatures[name] = str(metric.get_signature())
    # some papers tokenize both sides first and compute BLEU on the tokens
    tokenize = BLEU().tokenizer
    tokenized_bleu = BLEU(lowercase=True, tokenize="none", force=True)
    metrics["bleu_tokenised_lowercase"] = tokenized_bleu.corpus_score(
        [tokenize(line) for line in hypotheses], [[tokenize(line) for line in references]]
    ).score
    signatures["bleu_tokenised_lowercase"] = f"{tokenized_bleu.get_signature()} on 13a tokens"
    metrics["bleu_paper"] = _paper_bleu([translation.forced for translation in ordered], references)
    signatures["bleu_paper"] = PAPER
    matches = sum(hypothesis == reference for hypothesis, reference in zip(hypotheses, references, strict=True))
    metrics["exact_match"] = matches / len(references)
    signatures["exact_match"] = "share of translations equal to their reference"
    return Report(metrics, signatures, hypotheses, references)


def _paper_bleu(forced: list[str], references: list[str]) -> float:
    """Return the metric that the paper calls BLEU."""
    bleu = BLEU(lowercase=True, smooth_method="none", effective_order=False)
    pairs = zip(forced, references, strict=True)
    # a corpus of one sentence, because ``sentence_score`` logs a warning for each sentence
    scores = [bleu.corpus_score([hypothesis], [[reference]]).score for hypothesis, reference in pairs]
    return sum(scores) / max(len(scores), 1)
