"""Numbers in English and German words: the embedded translation data.

German puts the units before the tens (21 is "einundzwanzig"), so a translator has to reorder, and a translation is
either right or wrong. German writes a number below one million as one word; here its parts are separate tokens, since
the vocabulary would otherwise have one word per number.
"""

LARGEST = 999_999

# fmt: off
ENGLISH_UNITS = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)
ENGLISH_TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
GERMAN_UNITS = (
    "null", "ein", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn", "elf", "zwölf",
    "dreizehn", "vierzehn", "fünfzehn", "sechzehn", "siebzehn", "achtzehn", "neunzehn",
)
GERMAN_TENS = ("", "", "zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig")
# fmt: on


def english(number: int) -> list[str]:
    """Return the English words of a number from 0 to 999,999."""
    _check(number)
    if number < 20:
        return [ENGLISH_UNITS[number]]
    if number < 100:
        return [ENGLISH_TENS[number // 10], *(english(number % 10) if number % 10 else [])]
    if number < 1000:
        rest = ["and", *english(number % 100)] if number % 100 else []
        return [ENGLISH_UNITS[number // 100], "hundred", *rest]
    rest = english(number % 1000) if number % 1000 else []
    if 0 < number % 1000 < 100:
        rest = ["and", *rest]
    return [*english(number // 1000), "thousand", *rest]


def german(number: int) -> list[str]:
    """Return the parts of the German word of a number from 0 to 999,999."""
    return _german(number, "eins")


def _german(number: int, final_one: str) -> list[str]:
    """Return the parts; a final 1 is ``final_one``: "eins" at the end of a number, "ein" before "tausend"."""
    _check(number)
    if number == 1:
        return [final_one]
    if number < 20:
        return [GERMAN_UNITS[number]]
    if number < 100:
        units = [GERMAN_UNITS[number % 10], "und"] if number % 10 else []
        return [*units, GERMAN_TENS[number // 10]]
    if number < 1000:
        return [GERMAN_UNITS[number // 100], "hundert", *(_german(number % 100, final_one) if number % 100 else [])]
    return [*_german(number // 1000, "ein"), "tausend", *(_german(number % 1000, final_one) if number % 1000 else [])]


def vocabularies() -> tuple[list[str], list[str]]:
    """Return all English and all German words of the numbers, sorted."""
    english_words = {*ENGLISH_UNITS, *ENGLISH_TENS, "hundred", "and", "thousand"}
    german_words = {*GERMAN_UNITS, *GERMAN_TENS, "eins", "und", "hundert", "tausend"}
    return sorted(english_words - {""}), sorted(german_words - {""})


def _check(number: int) -> None:
    if not 0 <= number <= LARGEST:
        raise ValueError(f"number must lie between 0 and {LARGEST}, got {number}")
