"""Number words: the two languages, and splits that share nothing."""

import pytest

from fna_lightning.tasks import NumberData
from fna_lightning.tasks.text.data import UNKNOWN
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
def test_numbers_are_said_as_people_say_them(number) -> None:
    assert (" ".join(english(number)), "".join(german(number))) == KNOWN[number]


def test_no_two_numbers_sound_the_same_and_every_word_is_known() -> None:
    some = [*range(2500), *range(2500, LARGEST + 1, 997)]
    first, second = vocabularies()
    assert len({tuple(english(one)) for one in some}) == len({tuple(german(one)) for one in some}) == len(some)
    assert {word for one in some for word in english(one)} == set(first)
    assert {word for one in some for word in german(one)} == set(second)


def test_splits_share_no_number_and_match_their_texts() -> None:
    data = NumberData(train_size=500, eval_size=50, largest=700)
    numbers = data.numbers
    assert len({*numbers["train"], *numbers["val"], *numbers["test"]}) == 600
    codec, pairs = data.codec, data.split("val")
    for (source, target, index), english_text, german_text in zip(pairs, *data.texts("val"), strict=True):
        assert codec.encode(english_text) == source.tolist()
        assert codec.encode_target(german_text) == target.tolist()
        assert codec.decode(target.tolist()) == german_text == data.texts("val")[1][index]
        assert UNKNOWN not in source


def test_more_numbers_than_there_are_is_said() -> None:
    with pytest.raises(ValueError, match=r"there are 101 numbers up to 100, and .* = 120 are asked for"):
        NumberData(train_size=100, eval_size=10, largest=100)
    with pytest.raises(ValueError, match="numbers go from 0 to 999999, got 1000000"):
        german(1_000_000)
