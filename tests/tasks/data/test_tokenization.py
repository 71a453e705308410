"""Tokenizers: token ids, unknown words, and reading tokens back."""

from typing import Any

import pytest

from fna_lightning.nn.token_table import PAD
from fna_lightning.tasks.data.tokenization import SPECIAL_TOKENS, UNKNOWN, Tokenization, train_tokenizer
from fna_lightning.tasks.text.codec import TextCodec
from fna_lightning.tasks.text.reviews import ReviewData

TEXTS = ["A film I don't regret.<br /><br />Not one bit!", "a film, again and again"] * 5


def trained_codec(**settings: Any) -> TextCodec:
    tokenization = Tokenization(**settings)
    return TextCodec(train_tokenizer(TEXTS, tokenization), ["negative", "positive"], tokenization.max_length)


@pytest.mark.parametrize("kind", ["bpe", "word"])
def test_ids_fit_the_embedding_table(kind) -> None:
    codec = trained_codec(kind=kind, vocab_size=300)
    ids = codec.encode("a film, again: don't! " + "".join(map(chr, range(32, 1000))))
    assert min(ids) > 0
    assert max(ids) < 300


def test_byte_level_tokenizers_have_no_unknown_text() -> None:
    assert UNKNOWN not in trained_codec(kind="bpe", vocab_size=300).encode("日本語 ☃ \x00 ﷽")


def test_words_keep_apostrophes_and_punctuation_marks_are_tokens() -> None:
    codec = trained_codec(kind="word", vocab_size=100, lowercase=True)
    assert len(codec.encode("Don't regret!!")) == 4
    assert codec.encode("DON'T") == codec.encode("don't") != codec.encode("don t")


def test_a_rare_word_is_unknown() -> None:
    assert trained_codec(kind="word", vocab_size=100).encode("film zyzzyva")[1] == UNKNOWN


def test_case_is_kept_by_default() -> None:
    assert trained_codec(kind="word", vocab_size=100).encode("Not") != trained_codec(
        kind="word", vocab_size=100
    ).encode("not")


def test_html_line_breaks_are_removed() -> None:
    codec = trained_codec(kind="bpe", vocab_size=300)
    assert codec.encode("one<br />two") == codec.encode("one two")


def test_a_text_that_spells_a_special_token_is_text() -> None:
    assert PAD not in trained_codec(kind="bpe", vocab_size=300).encode("[PAD] and [UNK]")


def test_an_empty_text_has_no_tokens() -> None:
    assert trained_codec(kind="word", vocab_size=100).encode("  \n ") == []


def test_the_codec_of_generated_reviews_encodes_like_the_data_module() -> None:
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
def test_invalid_settings_raise(settings, message) -> None:
    with pytest.raises(ValueError, match=message):
        Tokenization(**settings)


@pytest.mark.parametrize("kind", ["bpe", "word"])
def test_tokens_are_readable(kind) -> None:
    codec = trained_codec(kind=kind, vocab_size=300)
    text = "a film again"
    assert "".join(codec.words(codec.encode(text))) == "afilmagain"
    spans = codec.spans("a film, zyzzyva")
    assert len(spans) == len(codec.encode("a film, zyzzyva"))
    # the space before a word may be a separate token
    assert "".join(spans).replace("␣", "") == "afilm,zyzzyva"


def test_a_word_called_byte_level_does_not_make_a_tokenizer_byte_level() -> None:
    tokenizer = train_tokenizer(["the ByteLevel café"], Tokenization(kind="word", vocab_size=100))
    codec = TextCodec(tokenizer, ["negative", "positive"], 8)
    assert codec.words(codec.encode("the ByteLevel café")) == ["the", "ByteLevel", "café"]


def test_special_tokens_have_the_first_ids() -> None:
    codec = trained_codec(kind="word", vocab_size=100)
    assert codec.words([PAD, UNKNOWN]) == SPECIAL_TOKENS
    assert codec.words([99_999]) == ["[99999]"]


def test_control_characters_are_shown_as_replacement_characters() -> None:
    codec = trained_codec(kind="bpe", vocab_size=300)
    assert [word for word in codec.words(codec.encode("\x1b")) if word != "␣"] == ["\ufffd"]
