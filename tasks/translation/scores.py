"""How good translations are, by sacrebleu and nothing else, each number with the signature that says what it is."""

import json
from dataclasses import dataclass
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
    """What a model says about one pair."""

    index: int  # of the pair in its split
    hypothesis: str  # decoded
    score: float  # of the search
    forced: str  # the likeliest token at each place given the right ones before it


@dataclass(frozen=True)
class Report:
    """The scores of a split."""

    metrics: dict[str, float]
    signatures: dict[str, str]
    hypotheses: list[str]
    references: list[str]

    def write(self, folder: Path, split: str, sources: list[str], decoding: Decoding) -> None:
        """Write what was read, said and expected, one sentence a line, and the scores with their signatures."""
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


def gather(mine: list[Scored]) -> list[Scored]:
    """Return what all processes found."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return mine
    parts: list[list[Scored]] = [[] for _ in range(torch.distributed.get_world_size())]
    torch.distributed.all_gather_object(parts, mine)
    return [one for part in parts for one in part]


def score(found: list[Scored], references: list[str]) -> Report:
    """Return the scores of translations, of which there must be exactly one for each reference."""
    by_index = {one.index: one for one in found}
    if len(found) != len(references) or sorted(by_index) != list(range(len(references))):
        raise RuntimeError(
            f"every sentence must be translated once: there are {len(references)} references, {len(found)} "
            f"translations of {len(by_index)} different sentences; test the whole split, without limits on its batches"
        )
    ordered = [by_index[index] for index in range(len(references))]
    said = [one.hypothesis for one in ordered]
    measures: dict[str, BLEU | CHRF | TER] = {
        "bleu": BLEU(),
        "bleu_lowercase": BLEU(lowercase=True),
        "chrf": CHRF(),
        "ter": TER(),
    }
    metrics: dict[str, float] = {}
    signatures: dict[str, str] = {}
    for name, measure in measures.items():
        metrics[name] = measure.corpus_score(said, [references]).score
        signatures[name] = str(measure.get_signature())
    # the figure of papers that cut into words first and then compare what is cut: the same words, counted as they are
    cut = BLEU().tokenizer
    tokenised = BLEU(lowercase=True, tokenize="none", force=True)
    metrics["bleu_tokenised_lowercase"] = tokenised.corpus_score(
        [cut(line) for line in said], [[cut(line) for line in references]]
    ).score
    signatures["bleu_tokenised_lowercase"] = f"{tokenised.get_signature()} on 13a tokens"
    metrics["bleu_paper"] = _paper([one.forced for one in ordered], references)
    signatures["bleu_paper"] = PAPER
    metrics["exact_match"] = sum(one == other for one, other in zip(said, references, strict=True)) / len(references)
    signatures["exact_match"] = "share of translations equal to their reference"
    return Report(metrics, signatures, said, references)


def _paper(forced: list[str], references: list[str]) -> float:
    """Return the number the paper calls BLEU."""
    measure = BLEU(lowercase=True, smooth_method="none", effective_order=False)
    each = [measure.sentence_score(one, [other]).score for one, other in zip(forced, references, strict=True)]
    return sum(each) / max(len(each), 1)
