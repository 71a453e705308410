"""Translate lines of standard input: one line in, one line out, in order, as they come.

An empty line stays empty. A sentence longer than the model reads is cut off, and so noted on standard error, as is one
with words the model does not know. With --nbest each line of the answer opens with the number of its line; with
--scores a translation is preceded by its score, the log-probability a token. Columns are set apart by tabs.

Examples:
  fna-lightning translate runs/multi30k_strong_fna/version_0/checkpoints/best.ckpt < en.txt > de.txt
  echo "twenty one" | fna-lightning translate best.ckpt --nbest 3 --scores
  echo "A man in an orange hat." | fna-lightning translate best.ckpt --align alignment.png
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from fna_lightning.errors import UsageError

if TYPE_CHECKING:
    from fna_lightning.search import Hypothesis
    from fna_lightning.tasks.translation.checkpointed_translator import CheckpointedTranslator
    from fna_lightning.tasks.translation.decoding import Decoding

# bytes read at once: what is there of them is translated before more is waited for
WINDOW = 1 << 16


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("checkpoint", metavar="CKPT", help="a checkpoint of a translation run")
    parser.add_argument("--beam", type=int, metavar="N", help="hypotheses kept, 1 is greedy (default: the run's)")
    parser.add_argument("--length-penalty", type=float, metavar="X", help="more favours longer (default: the run's)")
    parser.add_argument("--nbest", type=int, default=1, metavar="N", help="translations of a line (default: 1)")
    parser.add_argument("--scores", action="store_true", help="show the score of each translation")
    parser.add_argument(
        "--batch-tokens", type=int, default=4096, metavar="N", help="tokens translated at once (default: %(default)s)"
    )
    parser.add_argument("--align", type=Path, metavar="PNG", help="draw what the first line's translation looked at")


def run(args: argparse.Namespace) -> int:
    """Print a translation of each line."""
    from fna_lightning.tasks.translation.checkpointed_translator import CheckpointedTranslator

    if args.nbest < 1 or args.batch_tokens < 1:
        raise UsageError(f"--nbest and --batch-tokens must be at least 1, got {args.nbest} and {args.batch_tokens}")
    translator = CheckpointedTranslator.open(args.checkpoint)
    decoding = chosen(translator.decoding, args)
    if sys.stdin.isatty():
        print("fna-lightning: type one sentence a line, end with Ctrl-D", file=sys.stderr)
    number = 0
    aligned = args.align is None
    for texts in windows(sys.stdin.buffer):
        lines = [Line(number + place, text) for place, text in enumerate(texts, start=1)]
        number += len(lines)
        read(lines, translator)
        translate_lines(lines, translator, decoding, args)
        for line in lines:
            for note in line.notes:
                print(f"fna-lightning: line {line.number} {note}", file=sys.stderr)
            for shown in answers(line, translator, args):
                print(shown)
        sys.stdout.flush()
        first = next((line for line in lines if line.found), None)
        if not aligned and first is not None:
            translator.draw_alignment(first.ids, first.found[0].tokens, args.align)
            aligned = True
    if not aligned:
        raise UsageError(f"--align {args.align}: there was no sentence to draw; give one on standard input")
    return 0


@dataclass
class Line:
    """A line on its way."""

    number: int
    content: bytes
    ids: list[int] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    found: "list[Hypothesis]" = field(default_factory=list)


def chosen(decoding: "Decoding", args: argparse.Namespace) -> "Decoding":
    """Return the run's settings with what the command line says."""
    if args.beam is not None and args.beam < 1:
        raise UsageError(f"--beam must be at least 1 (greedy), got {args.beam}")
    beam = decoding.beam if args.beam is None else args.beam
    if args.nbest > beam:
        raise UsageError(f"--nbest {args.nbest} is more than the beam holds ({beam}); say --beam {args.nbest} too")
    penalty = decoding.length_penalty if args.length_penalty is None else args.length_penalty
    return replace(decoding, beam=beam, length_penalty=penalty)


def windows(stream: BinaryIO) -> Iterator[list[bytes]]:
    """Yield the lines that have come so far, again and again; only a line without its end is waited for."""
    rest = b""
    # read1 returns what there is, and waits only when there is nothing
    while chunk := stream.read1(WINDOW):  # type: ignore[attr-defined]
        *lines, rest = (rest + chunk).split(b"\n")
        if lines:
            yield lines
    if rest:
        yield [rest]


def read(lines: list[Line], translator: "CheckpointedTranslator") -> None:
    """Fill in the token ids of each line and what there is to say about them."""
    for line in lines:
        content = line.content.removesuffix(b"\r")
        try:
            text = content.decode("utf-8")
        except UnicodeDecodeError:
            line.notes.append("is not UTF-8; what cannot be read is replaced by �")
            text = content.decode("utf-8", "replace")
        line.ids, notes = translator.read(text)
        line.notes += notes


def translate_lines(
    lines: list[Line], translator: "CheckpointedTranslator", decoding: "Decoding", args: argparse.Namespace
) -> None:
    """Fill in the translations, lines of similar length together."""
    # the longest first, so that what does not fit into memory fails at once
    waiting = sorted((line for line in lines if line.ids), key=lambda line: -len(line.ids))
    while waiting:
        size = max(1, args.batch_tokens // (len(waiting[0].ids) + 1))
        batch, waiting = waiting[:size], waiting[size:]
        found = translator.translate([line.ids for line in batch], decoding, n_best=args.nbest)
        for line, some in zip(batch, found, strict=True):
            line.found = some


def answers(line: Line, translator: "CheckpointedTranslator", args: argparse.Namespace) -> Iterator[str]:
    """Yield what is printed for a line: at least one line."""
    start = f"{line.number}\t" if args.nbest > 1 else ""
    if not line.found:
        yield start + ("-\t" if args.scores else "")
    for one in line.found:
        score = f"{one.score:.4f}\t" if args.scores else ""
        # whatever a model says, it is one line
        yield start + score + " ".join(translator.codec.decode(one.tokens).split())
