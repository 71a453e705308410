"""BPE dropout (Provilkov et al., 2020): random tokenizations of the same text, reproducible from a seed.

The dropout of the `tokenizers` library cannot be seeded, so the merges are made here.
"""

import json
import random
from functools import cache
from itertools import pairwise

from fna_lightning.tasks.data.tokenization import Tokenization

# tokenizations of every training pair; each epoch takes one of them at random
VARIANTS = 8
# Different tokenizations of one word. Words repeat so often that more of them would only take time.
WORD_VARIANTS = 64


def check_bpe_dropout(dropout: float, tokenization: Tokenization) -> None:
    """Raise ValueError if the sentences cannot be tokenized with this dropout."""
    if not 0.0 <= dropout < 1.0:
        raise ValueError(f"bpe_dropout must lie in [0, 1), got {dropout}")
    if dropout and tokenization.kind != "bpe":
        raise ValueError(
            f"bpe_dropout = {dropout} leaves out merges of BPE, which a tokenizer of kind {tokenization.kind!r} does "
            "not have; set bpe_dropout to 0, or tokenization.kind to 'bpe'"
        )


class DropoutEncoder:
    """Tokenizes texts with BPE of which random merges are left out.

    Args:
        tokenizer: JSON of a byte-level BPE tokenizer.
        dropout: probability that a merge is left out, at each step of each word.
        seed: seed of the random numbers. The result also depends on the texts that were encoded before.
    """

    def __init__(self, tokenizer: str, dropout: float, seed: int = 0) -> None:
        from tokenizers import Tokenizer

        model = json.loads(tokenizer)["model"]
        self.dropout = dropout
        self._tokenizer = Tokenizer.from_str(tokenizer)
        self._ids: dict[str, int] = model["vocab"]
        self._ranks = {_pair(merge): rank for rank, merge in enumerate(model["merges"])}
        self._random = random.Random(seed)
        # called with the same word and number, it returns the same tokens
        self._word = cache(lambda word, _: self.encode_word(word))

    @property
    def vocab_size(self) -> int:
        """Number of token ids."""
        return len(self._ids)

    def encode(self, text: str, count: int) -> list[list[int]]:
        """Return ``count`` tokenizations of a text, each as token ids."""
        text = self._tokenizer.normalizer.normalize_str(text)
        words = [word for word, _ in self._tokenizer.pre_tokenizer.pre_tokenize_str(text)]
        return [
            [token for word in words for token in self._word(word, self._random.randrange(WORD_VARIANTS))]
            for _ in range(count)
        ]

    def encode_word(self, word: str) -> list[int]:
        """Return the token ids of a word; every possible merge is left out with probability ``dropout``."""
        parts = list(word)
        while merges := [
            (rank, index)
            for index, pair in enumerate(pairwise(parts))
            if (rank := self._ranks.get(pair)) is not None and self._random.random() >= self.dropout
        ]:
            _, index = min(merges)
            parts[index : index + 2] = [parts[index] + parts[index + 1]]
        return [self._ids[part] for part in parts]


def _pair(merge: str | list[str]) -> tuple[str, str]:
    # older versions of the library write "a b" instead of ["a", "b"]
    first, second = merge.split(" ") if isinstance(merge, str) else merge
    return first, second
