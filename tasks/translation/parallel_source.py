"""Sentences with their translations, from the hub, a folder in the hub's layout, or two text files a split."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from fna_lightning.errors import UsageError
from fna_lightning.tasks.text.source import TextSource, check_texts, open_dataset

# our name of a split: the names it has elsewhere
SPLIT_NAMES = {"train": ("train",), "val": ("val", "validation", "valid", "dev"), "test": ("test",)}

# sources and translations of each split
ParallelTexts = dict[str, tuple[list[str], list[str]]]


@dataclass(frozen=True)
class ParallelSource:
    """Where pairs of sentences come from.

    Args:
        path: a folder, or a name on the hub.
        source: column or file ending of the language that is read.
        target: column or file ending of the language that is said.
    """

    path: str
    source: str
    target: str

    @classmethod
    def find(cls, path: str | None, folder: str, hub_name: str, source: str, target: str) -> "ParallelSource":
        """Return the source at ``path``; else ``folder`` in FNA_DATA if it is there; else the hub's."""
        return cls(TextSource.find(path, folder, hub_name, 0).path, source, target)

    @cached_property
    def fingerprint(self) -> str:
        """What the texts are."""
        content = TextSource(self.path, 0).fingerprint
        return hashlib.sha256(f"{content} {self.source} {self.target}".encode()).hexdigest()

    def read(self) -> ParallelTexts:
        """Return the sentences of all splits."""
        folder = Path(self.path)
        if any((folder / f"train.{language}").is_file() for language in (self.source, self.target)):
            return {split: self._files(folder, split) for split in SPLIT_NAMES}
        texts: ParallelTexts = {}
        with open_dataset(self.path, self._expected(), self._ways()) as found:
            for split, names in SPLIT_NAMES.items():
                name = next((one for one in names if one in found), None)
                if name is None:
                    raise UsageError(
                        f"{self.path} has the splits {', '.join(found)} and no {split!r}; {self._expected()}"
                    )
                columns = found[name].column_names
                for language in (self.source, self.target):
                    if language not in columns:
                        raise UsageError(
                            f"split {name!r} of {self.path} has the columns {', '.join(columns)} and no {language}; "
                            f"{self._expected()}"
                        )
                sides = [list(found[name][language]) for language in (self.source, self.target)]
                for language, side in zip((self.source, self.target), sides, strict=True):
                    check_texts(side, f"column {language!r} of split {name!r} of {self.path}")
                texts[split] = sides[0], sides[1]
        return texts

    def _files(self, folder: Path, split: str) -> tuple[list[str], list[str]]:
        stem = next((one for one in SPLIT_NAMES[split] if (folder / f"{one}.{self.source}").is_file()), split)
        sides = [read_lines(folder / f"{stem}.{language}") for language in (self.source, self.target)]
        if len(sides[0]) != len(sides[1]):
            raise UsageError(
                f"{stem}.{self.source} has {len(sides[0])} lines and {stem}.{self.target} has {len(sides[1])} in "
                f"{folder}; line by line they must be translations of each other"
            )
        return sides[0], sides[1]

    def _expected(self) -> str:
        return (
            f"expected are the splits train, val and test (.jsonl or .parquet) with the columns {self.source} and "
            f"{self.target}, or the text files train.{self.source}, train.{self.target}, val.{self.source} and so on"
        )

    def _ways(self) -> str:
        return (
            "either connect to the internet once, so that it is fetched from the hub, or set --data.path to a folder "
            f"({self._expected()}); FNA_DATA names the folder above it"
        )


def read_lines(path: Path) -> list[str]:
    """Return the lines of a text file in UTF-8."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}); it must hold one sentence a line") from error
    lines = []
    for number, line in enumerate(content.removesuffix(b"\n").split(b"\n") if content else [], start=1):
        try:
            lines.append(line.removesuffix(b"\r").decode("utf-8"))
        except UnicodeDecodeError as error:
            raise UsageError(
                f"line {number} of {path} is not UTF-8 (byte {error.start + 1}); convert the file, e.g. with iconv"
            ) from error
    return lines
