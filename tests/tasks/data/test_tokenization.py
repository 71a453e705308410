"""Tokenizers: what they keep of a text, and what they cost in ids."""

from typing import Any

import pytest

from fna_lightning.tasks.data.tokenization import Tokenization, train_tokenizer
from fna_lightning.tasks.text.codec import TextCodec
from fna_lightning.tasks.text.data import UNKNOWN
from fna_lightning.tasks.text.reviews import ReviewData

TEXTS = ["A film I don't regret.<br /><br />Not one bit!", "a film, again and again"] * 5


def codec(**settings: Any) -> TextCodec:
    how = Tokenization(**settings)
    return TextCodec(train_tokenizer(TEXTS, how), ["negative", "positive"], how.max_length)


@pytest.mark.parametrize("kind", ["bpe", "word"])
def test_ids_fit_the_embedding_table(kind) -> None:
    cutter = codec(kind=kind, vocab_size=300)
    ids = cutter.encode("a film, again: don't! " + "".join(map(chr, range(32, 1000))))
    assert min(ids) > 0
    assert max(ids) < 300


def test_bytes_leave_no_text_unknown() -> None:
    assert UNKNOWN not in codec(kind="bpe", vocab_size=300).encode("日本語 ☃ \x00 ﷽")


def test_words_keep_their_apostrophes_and_signs_stand_alone() -> None:
    cutter = codec(kind="word", vocab_size=100, lowercase=True)
    assert len(cutter.encode("Don't regret!!")) == 4
    assert cutter.encode("DON'T") == cutter.encode("don't") != cutter.encode("don t")


def test_a_rare_word_is_unknown() -> None:
    assert codec(kind="word", vocab_size=100).encode("film zyzzyva")[1] == UNKNOWN


def test_case_is_kept_unless_told() -> None:
    assert codec(kind="word", vocab_size=100).encode("Not") != codec(kind="word", vocab_size=100).encode("not")


def test_markup_for_line_breaks_is_no_text() -> None:
    cutter = codec(kind="bpe", vocab_size=300)
    assert cutter.encode("one<br />two") == cutter.encode("one two")


def test_a_text_that_spells_a_special_token_is_text() -> None:
    assert 0 not in codec(kind="bpe", vocab_size=300).encode("[PAD] and [UNK]")


def test_an_empty_text_has_no_tokens() -> None:
    assert codec(kind="word", vocab_size=100).encode("  \n ") == []


def test_the_codec_of_the_embedded_reviews_reads_as_their_data_module_does() -> None:
    data = ReviewData(train_size=5, eval_size=5)
    text = "The plot was GRIPPING xylophone"
    assert data.codec.encode(text) == data.encode(text)
    assert UNKNOWN in data.encode(text)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "letters"}, "unknown tokenizer kind 'letters'; choose one of bpe, word"),
        ({"vocab_size": 100}, "vocab_size must be at least 258 for kind 'bpe', got 100"),
        ({"max_length": 0}, "max_length must be at least 1, got 0"),
    ],
)
def test_what_cannot_be_is_refused(settings, message) -> None:
    with pytest.raises(ValueError, match=message):
        Tokenization(**settings)


@pytest.mark.parametrize("kind", ["bpe", "word"])
def test_tokens_can_be_read_again(kind) -> None:
    cutter = codec(kind=kind, vocab_size=300)
    text = "a film again"
    assert "".join(cutter.words(cutter.encode(text))) == "afilmagain"
    spans = cutter.spans("a film, zyzzyva")
    assert len(spans) == len(cutter.encode("a film, zyzzyva"))
    # the space before a word may be a token of its own
    assert "".join(spans).replace("␣", "") == "afilm,zyzzyva"
