"""Number words in both languages, and disjoint splits."""

import pytest

from fna_lightning.tasks import NumberData
from fna_lightning.tasks.data.tokenization import UNKNOWN
from fna_lightning.tasks.translation.number_words import LARGEST, english, german, vocabularies

KNOWN = {
    0: ("zero", "null"),
    1: ("one", "eins"),
    12: ("twelve", "zwölf"),
    16: ("sixteen", "sechzehn"),
    21: ("twenty one", "einundzwanzig"),
    30: ("thirty", "dreißig"),
    77: ("seventy seven", "siebenundsiebzig"),
    100: ("one hundred", "einhundert"),
    101: ("one hundred and one", "einhunderteins"),
    342: ("three hundred and forty two", "dreihundertzweiundvierzig"),
    1001: ("one thousand and one", "eintausendeins"),
    1100: ("one thousand one hundred", "eintausendeinhundert"),
    21_021: ("twenty one thousand and twenty one", "einundzwanzigtausendeinundzwanzig"),
    101_000: ("one hundred and one thousand", "einhunderteintausend"),
    999_999: (
        "nine hundred and ninety nine thousand nine hundred and ninety nine",
        "neunhundertneunundneunzigtausendneunhundertneunundneunzig",
    ),
}


@pytest.mark.parametrize("number", KNOWN)
def test_numbers_in_words(number) -> None:
    assert (" ".join(english(number)), "".join(german(number))) == KNOWN[number]


def test_numbers_have_different_words_and_the_vocabularies_are_complete() -> None:
    numbers = [*range(2500), *range(2500, LARGEST + 1, 997)]
    for words, vocabulary in zip((english, german), vocabularies(), strict=True):
        assert len({tuple(words(number)) for number in numbers}) == len(numbers)
        assert {word for number in numbers for word in words(number)} == set(vocabulary)


def test_splits_are_disjoint_and_match_their_texts() -> None:
    data = NumberData(train_size=500, eval_size=50, largest=700)
    numbers = data.numbers
    assert len({*numbers["train"], *numbers["val"], *numbers["test"]}) == 600
    codec, pairs = data.codec, data.split("val")
    for (source, target, index), english_text, german_text in zip(pairs, *data.texts("val"), strict=True):
        assert codec.encode(english_text) == source.tolist()
        assert codec.encode_target(german_text) == target.tolist()
        assert codec.decode(target.tolist()) == german_text == data.texts("val")[1][index]
        assert UNKNOWN not in source


def test_too_many_examples_and_too_large_numbers_raise() -> None:
    with pytest.raises(ValueError, match=r"there are 101 numbers up to 100, but train_size \+ 2 \* eval_size is 120"):
        NumberData(train_size=100, eval_size=10, largest=100)
    with pytest.raises(ValueError, match="number must lie between 0 and 999999, got 1000000"):
        german(1_000_000)
