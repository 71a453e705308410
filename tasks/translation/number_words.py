"""Numbers in words, English and German: the embedded translation data.

German says the units before the tens (21 is "einundzwanzig") and writes what is below a million as one word, so a
translator has to reorder, and every answer is either right or wrong. One word of the German text stands for one part
of the number here: the parts are set apart, or there would be as many words as numbers.
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


def _german(number: int, one: str) -> list[str]:
    """Return the parts; a last 1 is called ``one``: "eins" at the end of a number, "ein" before "tausend"."""
    _check(number)
    if number == 1:
        return [one]
    if number < 20:
        return [GERMAN_UNITS[number]]
    if number < 100:
        units = [GERMAN_UNITS[number % 10], "und"] if number % 10 else []
        return [*units, GERMAN_TENS[number // 10]]
    if number < 1000:
        return [GERMAN_UNITS[number // 100], "hundert", *(_german(number % 100, one) if number % 100 else [])]
    return [*_german(number // 1000, "ein"), "tausend", *(_german(number % 1000, one) if number % 1000 else [])]


def vocabularies() -> tuple[list[str], list[str]]:
    """Return every English and every German word the numbers need, sorted."""
    both = {*ENGLISH_UNITS, *ENGLISH_TENS, "hundred", "and", "thousand"}
    other = {*GERMAN_UNITS, *GERMAN_TENS, "eins", "und", "hundert", "tausend"}
    return sorted(both - {""}), sorted(other - {""})


def _check(number: int) -> None:
    if not 0 <= number <= LARGEST:
        raise ValueError(f"numbers go from 0 to {LARGEST}, got {number}")
