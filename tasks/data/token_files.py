"""Token arrays on disk: written once, then mapped into memory."""

import hashlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.progress import track

from fna_lightning.tasks.data.array_files import save_array
from fna_lightning.tasks.data.cache import cached_files
from fna_lightning.tasks.text.data import Sequences

# texts given to the tokenizer at once; it spreads them over all cores
CHUNK = 1000


def write_tokens(folder: Path, tokenizer: str, texts: list[str], labels: list[int], description: str) -> None:
    """Tokenise ``texts`` and write their ids, labels and digests into ``folder``."""
    from tokenizers import Tokenizer

    cutter = Tokenizer.from_str(tokenizer)
    small = cutter.get_vocab_size() <= np.iinfo(np.uint16).max + 1
    dtype = np.uint16 if small else np.int32
    pieces: list[NDArray[np.integer]] = []
    for start in track(range(0, len(texts), CHUNK), description, transient=True):
        pieces += [np.asarray(one.ids, dtype) for one in cutter.encode_batch_fast(texts[start : start + CHUNK])]
    save_array(folder / "tokens.npy", np.concatenate(pieces) if pieces else np.empty(0, dtype))
    save_array(folder / "lengths.npy", np.asarray([len(one) for one in pieces], dtype=np.int64))
    save_array(folder / "labels.npy", np.asarray(labels, dtype=np.int64))
    save_array(folder / "digests.npy", np.asarray([_digest(text) for text in texts], dtype=np.uint64))


def open_tokens(folder: Path) -> Sequences:
    """Return the sequences in ``folder``; their tokens stay on disk until they are read."""
    with cached_files(folder):
        lengths = np.load(folder / "lengths.npy")
        tokens = np.load(folder / "tokens.npy", mmap_mode="r")
        return Sequences(tokens, lengths.cumsum() - lengths, lengths, np.load(folder / "labels.npy"))


def text_digests(folder: Path) -> NDArray[np.uint64]:
    """Return a number for each text; equal texts, and only they, have equal numbers."""
    with cached_files(folder):
        return np.load(folder / "digests.npy")


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")
