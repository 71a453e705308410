"""Small files in the layout of the real data sets, enough to train every shipped configuration for one step."""

import json
import math
import random
from pathlib import Path

from helpers.cifar_folder import cifar_folder
from helpers.imdb_folder import imdb_folder
from helpers.photo_folder import photo_folder

TOPIC_WORDS = {
    "sports": ["match", "goal", "team", "coach", "season", "player", "league", "score"],
    "cooking": ["oven", "butter", "recipe", "flour", "taste", "pan", "sauce", "garlic"],
    "travel": ["hotel", "flight", "beach", "museum", "ticket", "train", "city", "island"],
}
OTHER_WORDS = ["the", "a", "was", "with", "and", "very", "good", "bad", "long", "we", "they", "first", "day", "again"]
SENTENCES = [("A man is walking.", "Ein Mann läuft."), ("Two dogs run.", "Zwei Hunde rennen.")] * 8


def shipped_data(folder: Path) -> Path:
    """Write small versions of CIFAR-10, IMDb and Multi30K, and photos, to ``folder``, for FNA_DATA, and return it."""
    cifar_folder(folder / "cifar10")
    imdb_folder(folder / "imdb")
    photo_folder(folder / "photos", 20)
    (folder / "multi30k").mkdir()
    for split in ("train", "val", "test"):
        lines = [json.dumps({"en": english, "de": german}) for english, german in SENTENCES]
        (folder / "multi30k" / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def own_data(folder: Path) -> None:
    """Write files such as a user has: mine.csv, survey.csv, english.txt and german.txt."""
    (folder / "mine.csv").write_text(topics_csv(60), encoding="utf-8")
    (folder / "survey.csv").write_text(survey_csv(300), encoding="utf-8")
    for side, name in enumerate(("english.txt", "german.txt")):
        (folder / name).write_text("".join(f"{pair[side]}\n" for pair in SENTENCES), encoding="utf-8")


def topics_csv(rows: int) -> str:
    """Return a table with the columns id, review and topic; two words of a review tell its topic."""
    rng = random.Random(0)
    lines = ["id,review,topic"]
    for number in range(rows):
        topic = rng.choice(list(TOPIC_WORDS))
        words = rng.choices(OTHER_WORDS, k=rng.randint(4, 20)) + rng.sample(TOPIC_WORDS[topic], 2)
        rng.shuffle(words)
        lines.append(f'{number},"{" ".join(words)}, I think.",{topic}')
    return "\n".join(lines) + "\n"


def survey_csv(rows: int) -> str:
    """Return a table with the columns lon, lat and height: a smooth hill at random positions."""
    rng = random.Random(0)
    lines = ["lon,lat,height"]
    for _ in range(rows):
        lon, lat = rng.uniform(5.0, 9.0), rng.uniform(45.0, 48.0)
        lines.append(f"{lon:.4f},{lat:.4f},{math.sin(lon) + math.cos(2.0 * lat):.4f}")
    return "\n".join(lines) + "\n"
