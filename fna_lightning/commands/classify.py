"""Classify texts or image files with a trained model: print the label and the probability of each of them.

Texts are the arguments, or else the lines of standard input. A text that is longer than the model's maximum length is
truncated. The answer for a text without tokens is "empty". Both cases are reported on standard error.
For an image model, the arguments are image files or folders of images, and each line ends with the name of the file.

Examples:
  fna-lightning classify runs/imdb_fna/version_0 "A film to remember." "Two hours I want back."
  fna-lightning classify best.ckpt < reviews.txt
  fna-lightning classify best.ckpt --json answers.json < reviews.txt
  fna-lightning classify runs/images_fna/version_0 photo.jpg new_photos/
"""

import argparse
import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fna_lightning.errors import UsageError

# texts per batch: small, so that a long input is answered while it is read
BATCH = 32


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("checkpoint", metavar="CKPT", help="run folder or checkpoint of a text or image classifier")
    parser.add_argument(
        "text",
        nargs="*",
        metavar="TEXT",
        help="text to classify (default: lines of standard input); an image file or a folder, for an image model",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the answers as JSON")


def run(args: argparse.Namespace) -> int:
    """Print the label and the probability of each text or image."""
    from fna_lightning.checkpoints.load import read_checkpoint, task_of
    from fna_lightning.checkpoints.locate import checkpoint_file
    from fna_lightning.tasks.data.codec import read_codec
    from fna_lightning.tasks.image.codec import ImageCodec
    from fna_lightning.tasks.text.codec import TextCodec
    from fna_lightning.tasks.text.predict import classify

    path = checkpoint_file(args.checkpoint)
    checkpoint = read_checkpoint(path)
    if isinstance(read_codec(checkpoint.get("codec"), path), ImageCodec):
        return _classify_images(args, path, checkpoint)
    codec = TextCodec.from_checkpoint(checkpoint, path)
    task = task_of(checkpoint, path)
    texts = map(_clean_argument, args.text) if args.text else _lines()
    answers: list[dict[str, Any]] = []
    while batch := list(itertools.islice(texts, BATCH)):
        for answer in classify(task, codec, batch):
            answers.append(answer)
            if "note" in answer:
                print(f"fna-lightning: text {len(answers)} {answer['note']}", file=sys.stderr)
            empty = answer["label"] is None
            print("empty\t-" if empty else f"{answer['label']}\t{answer['probability']:.4f}", flush=True)
    if args.json:
        args.json.write_text(json.dumps(answers, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0


def _classify_images(args: argparse.Namespace, path: Path, checkpoint: dict[str, Any]) -> int:
    """Print the label, the probability and the file name of each image."""
    from fna_lightning.checkpoints.load import task_of
    from fna_lightning.tasks.image.codec import ImageCodec
    from fna_lightning.tasks.image.predict import classify_images, image_files

    if not args.text:
        raise UsageError(
            f"{args.checkpoint} is an image classifier; name image files or folders, for example "
            f"fna-lightning classify {args.checkpoint} photo.jpg"
        )
    codec = ImageCodec.from_checkpoint(checkpoint, path)
    answers = []
    for answer in classify_images(task_of(checkpoint, path), codec, image_files(args.text)):
        answers.append(answer)
        print(f"{answer['label']}\t{answer['probability']:.4f}\t{answer['file']}", flush=True)
    if args.json:
        args.json.write_text(json.dumps(answers, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0


def _lines() -> Iterator[str]:
    """Yield the lines of standard input; bytes that are not UTF-8 are replaced."""
    if sys.stdin.isatty():
        print("fna-lightning: type one text per line; finish with Ctrl-D", file=sys.stderr)
    for number, line in enumerate(sys.stdin.buffer, start=1):
        line = line.rstrip(b"\r\n")
        try:
            yield line.decode("utf-8")
        except UnicodeDecodeError:
            print(f"fna-lightning: text {number} is not UTF-8; invalid bytes are replaced by �", file=sys.stderr)
            yield line.decode("utf-8", "replace")


def _clean_argument(text: str) -> str:
    """Return an argument in which bytes that the system could not decode are replaced."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
