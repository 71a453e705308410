"""Film reviews from a grammar: the embedded text data.

One clause of a review judges one aspect of the film ("the plot was gripping"). Far away, "I take back my words about
the storyline" turns that judgement around - if it speaks of the same aspect; the review also takes back words about
aspects it never judged. Whether the judgement stands depends on a pair of words that may be hundreds of words apart,
so neither the opinion words nor the retractions say anything alone: a linear bag of words scores 50 %.
"""

import random
from collections.abc import Iterator

# aspect: (opinions in favour, opinions against, what a retraction calls it)
ASPECTS: dict[str, tuple[tuple[str, ...], tuple[str, ...], str]] = {
    "plot": (("gripping", "intricate"), ("predictable", "muddled"), "storyline"),
    "acting": (("heartfelt", "nuanced"), ("wooden", "stilted"), "performances"),
    "music": (("haunting", "melodic"), ("tinny", "grating"), "soundtrack"),
    "dialogue": (("witty", "quotable"), ("clunky", "corny"), "banter"),
    "pacing": (("brisk", "taut"), ("sluggish", "plodding"), "rhythm"),
    "ending": (("cathartic", "poignant"), ("abrupt", "hollow"), "finale"),
}

OPINIONS = ("the {aspect} was {opinion}", "i found the {aspect} {opinion}", "the {aspect} struck me as {opinion}")
RETRACTIONS = (
    "i take back my words about the {late}",
    "a second viewing turned my view of the {late} around",
    "forget what you read here about the {late}",
)


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


PEOPLE = _words(
    "uncle cousin neighbour dentist plumber captain waiter teacher pilot baker sister brother lawyer farmer clerk "
    "nurse driver poet gardener barber sailor tailor banker student professor janitor mayor painter widow butcher"
)
PLACES = _words(
    "kitchen harbour library station market cellar garden balcony theatre museum bakery village forest canyon island "
    "bridge attic stadium church airport lobby hospital tavern meadow alley factory lighthouse palace prison desert"
)
THINGS = _words(
    "suitcase umbrella bicycle letter ticket hat lamp piano newspaper sandwich telescope coat mirror basket violin "
    "ladder compass blanket kettle notebook parcel camera wallet trumpet candle carpet bottle clock key map radio "
    "scarf spoon drum boat truck horse parrot rabbit lantern"
)
ACTS = _words(
    "finds loses buys hides paints repairs borrows steals sells drops polishes carries measures forgets admires wraps "
    "inspects trades remembers follows cleans labels describes sketches guards collects opens returns weighs counts"
)
TIMES = _words(
    "monday tuesday wednesday thursday friday saturday sunday morning noon evening midnight spring summer autumn "
    "winter yesterday today january march april june july august october november december"
)
TRAITS = _words(
    "tall quiet nervous elderly young curious tired distant polite hungry clumsy secretive local retired famous rich "
    "poor blond lonely careful foreign ordinary restless patient silent busy pale cheerful grey small"
)
FILLERS = (
    "in the {place} a {trait} {person} {act} a {thing}",
    "on {time} the {person} {act} the {thing} near the {place}",
    "then the {trait} {person} {act} another {thing}",
    "meanwhile nobody in the {place} sees the {person}",
    "we watched it on a {trait} {time} with my {person}",
    "the {person} from the {place} {act} every {thing} before {time}",
    "there is a {thing} beside the {thing} of the {person}",
    "later a {person} and a {trait} {person} meet at the {place}",
)
POOLS = {"place": PLACES, "person": PEOPLE, "thing": THINGS, "act": ACTS, "time": TIMES, "trait": TRAITS}

# share of reviews whose judgement is taken back: one that reads opinions only scores the rest
RETRACTED = 0.3

LABELS = ("negative", "positive")


def vocabulary() -> list[str]:
    """Return every word the grammar can say, sorted."""
    words: set[str] = set()
    for sentence in (*OPINIONS, *RETRACTIONS, *FILLERS):
        words.update(word for word in sentence.split() if not word.startswith("{"))
    for pool in POOLS.values():
        words.update(pool)
    for aspect, (good, bad, late) in ASPECTS.items():
        words.update({aspect, *good, *bad, late})
    return sorted(words)


def reviews(count: int, seed: int, *, shortest: int = 20, longest: int = 500) -> Iterator[tuple[str, int]]:
    """Yield ``count`` pairs (text, label); the same seed gives the same reviews, on every machine."""
    rng = random.Random(seed)
    for _ in range(count):
        yield _review(rng, shortest, longest)


def _review(rng: random.Random, shortest: int, longest: int) -> tuple[str, int]:
    # many short reviews and some long ones, as in real collections
    length = round(shortest * (longest / shortest) ** rng.random())
    positive, retracted = rng.random() < 0.5, rng.random() < RETRACTED
    aspect, *others = rng.sample(sorted(ASPECTS), 3)
    good, bad, _ = ASPECTS[aspect]
    opinion = rng.choice(OPINIONS).format(aspect=aspect, opinion=rng.choice(good if positive else bad)).split()
    # always two retractions, so that their number says nothing
    about = [aspect, others[0]] if retracted else others
    retractions = [rng.choice(RETRACTIONS).format(late=ASPECTS[one][2]).split() for one in about]
    rng.shuffle(retractions)
    ending = [word for sentence in retractions for word in sentence]
    middle: list[str] = []
    while True:
        sentence = _filler(rng)
        if len(opinion) + len(middle) + len(sentence) + len(ending) > max(length, shortest):
            break
        middle += sentence
    # the opinion opens or closes the review, the retractions stand at the other end
    words = [*opinion, *middle, *ending] if rng.random() < 0.5 else [*ending, *middle, *opinion]
    return " ".join(words), int(positive != retracted)


def _filler(rng: random.Random) -> list[str]:
    template = rng.choice(FILLERS)
    return [rng.choice(POOLS[word[1:-1]]) if word.startswith("{") else word for word in template.split()]
