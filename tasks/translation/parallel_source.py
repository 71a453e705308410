"""Sentences and their translations on the hub, in a folder with the hub's layout, or in two text files per split."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from fna_lightning.errors import UsageError
from fna_lightning.tasks.data.hub import HubDataset, check_texts, content_fingerprint
from fna_lightning.tasks.data.splits import SPLIT_NAMES
from fna_lightning.tasks.data.text_encoding import read_text_file

# sources and translations of each split
ParallelTexts = dict[str, tuple[list[str], list[str]]]


@dataclass(frozen=True)
class ParallelSource(HubDataset):
    """A data set of sentence pairs.

    Args:
        path: a folder, or ``hub:`` and a name on the hub.
        source: column or file ending of the source language.
        target: column or file ending of the target language.
    """

    source: str
    target: str

    @property
    def layout(self) -> str:
        return (
            f"the splits train, val and test (.jsonl or .parquet) with the columns {self.source} and {self.target}, or "
            f"the text files train.{self.source}, train.{self.target}, val.{self.source} and so on"
        )

    @cached_property
    def fingerprint(self) -> str:
        content = content_fingerprint(self.path)
        return hashlib.sha256(f"{content} {self.source} {self.target}".encode()).hexdigest()

    def read(self) -> ParallelTexts:
        """Return the sentences of all splits."""
        folder, languages = Path(self.path), (self.source, self.target)
        if any((folder / f"train.{language}").is_file() for language in languages):
            return {split: self._read_files(folder, split) for split in SPLIT_NAMES}
        texts: ParallelTexts = {}
        with self.open() as splits:
            for split, names in SPLIT_NAMES.items():
                name = next((name for name in names if name in splits), split)
                examples = self.checked_split(splits, name, languages)
                sides = [list(examples[language]) for language in languages]
                for language, side in zip(languages, sides, strict=True):
                    check_texts(side, f"column {language!r} of split {name!r} of {self.path}")
                texts[split] = sides[0], sides[1]
        return texts

    def _read_files(self, folder: Path, split: str) -> tuple[list[str], list[str]]:
        names = (name for name in SPLIT_NAMES[split] if (folder / f"{name}.{self.source}").is_file())
        stem = next(names, split)
        sides = [read_lines(folder / f"{stem}.{language}") for language in (self.source, self.target)]
        if len(sides[0]) != len(sides[1]):
            raise UsageError(
                f"{stem}.{self.source} has {len(sides[0])} lines and {stem}.{self.target} has {len(sides[1])} in "
                f"{folder}; line i of one file must be the translation of line i of the other"
            )
        return sides[0], sides[1]


def read_lines(path: Path) -> list[str]:
    """Return the lines of a text file in UTF-8; only line feeds separate lines."""
    text = read_text_file(path, "it must have one sentence per line")
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")] if text else []
