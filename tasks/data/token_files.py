"""Tokenizers and token arrays on disk: written once, then read or memory-mapped."""

import hashlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.progress import track

from fna_lightning.tasks.data.array_files import save_array
from fna_lightning.tasks.data.cache import cached_files
from fna_lightning.tasks.data.sequences import Sequences

# texts per call of the tokenizer, which distributes them over all cores
CHUNK = 1000


def read_tokenizer(folder: Path, name: str = "tokenizer.json") -> str:
    """Return the JSON of the tokenizer in a cache folder."""
    with cached_files(folder):
        return (folder / name).read_text(encoding="utf-8")


def tokenizer_digest(tokenizer: str) -> str:
    """Return the SHA-256 digest of a tokenizer's JSON."""
    return hashlib.sha256(tokenizer.encode()).hexdigest()


def write_tokens(folder: Path, tokenizer: str, texts: list[str], labels: list[int], description: str) -> None:
    """Tokenize ``texts`` and write their token ids, labels and digests into ``folder``."""
    from tokenizers import Tokenizer

    encoder = Tokenizer.from_str(tokenizer)
    dtype = token_dtype(encoder.get_vocab_size())
    sequences: list[NDArray[np.integer]] = []
    for start in track(range(0, len(texts), CHUNK), description, transient=True):
        encodings = encoder.encode_batch_fast(texts[start : start + CHUNK])
        sequences += [np.asarray(encoding.ids, dtype) for encoding in encodings]
    save_sequences(folder, sequences, labels, dtype)
    save_array(folder / "digests.npy", np.asarray([_digest(text) for text in texts], dtype=np.uint64))


def token_dtype(vocab_size: int) -> type[np.integer]:
    """Return the smallest integer type in which token ids are stored."""
    return np.uint16 if vocab_size <= np.iinfo(np.uint16).max + 1 else np.int32


def save_sequences(
    folder: Path, sequences: list[NDArray[np.integer]], labels: list[int], dtype: type[np.integer]
) -> None:
    """Write the token ids, lengths and labels of sequences into ``folder``, for ``open_tokens``."""
    save_array(folder / "tokens.npy", np.concatenate(sequences) if sequences else np.empty(0, dtype))
    save_array(folder / "lengths.npy", np.asarray([len(sequence) for sequence in sequences], dtype=np.int64))
    save_array(folder / "labels.npy", np.asarray(labels, dtype=np.int64))


def open_tokens(folder: Path) -> Sequences:
    """Return the sequences in ``folder``; their tokens are memory-mapped."""
    with cached_files(folder):
        lengths = np.load(folder / "lengths.npy")
        tokens = np.load(folder / "tokens.npy", mmap_mode="r")
        return Sequences(tokens, lengths.cumsum() - lengths, lengths, np.load(folder / "labels.npy"))


def text_digests(folder: Path) -> NDArray[np.uint64]:
    """Return a 64-bit digest of each text, to find equal texts."""
    with cached_files(folder):
        return np.load(folder / "digests.npy")


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")
