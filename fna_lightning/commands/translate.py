"""Translate standard input line by line: one line of output per line of input, in the same order.

Lines are translated as they arrive. An empty line stays empty. A sentence that is longer than the model's maximum
length is truncated; this and unknown words are reported on standard error. Columns are separated by tabs: with --nbest
the first column is the number of the input line, and with --scores the next column is the score, the
length-normalized log-probability.

Examples:
  fna-lightning translate runs/multi30k_strong_fna/version_0 < en.txt > de.txt
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
    from fna_lightning.tasks.translation.decoding import Decoding
    from fna_lightning.tasks.translation.translator import Translator

# bytes per read; the lines of one read are translated together
WINDOW = 1 << 16


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("checkpoint", metavar="CKPT", help="run folder or checkpoint of a translation run")
    parser.add_argument("--beam", type=int, metavar="N", help="beam size, 1 is greedy (default: that of the run)")
    parser.add_argument(
        "--length-penalty", type=float, metavar="X", help="higher favors longer translations (default: that of the run)"
    )
    parser.add_argument("--nbest", type=int, default=1, metavar="N", help="translations per line (default: 1)")
    parser.add_argument("--scores", action="store_true", help="print the score of each translation")
    parser.add_argument(
        "--batch-tokens", type=int, default=4096, metavar="N", help="source tokens per batch (default: %(default)s)"
    )
    parser.add_argument("--align", type=Path, metavar="PNG", help="draw the cross-attention of the first translation")


def run(args: argparse.Namespace) -> int:
    """Print the translations of each line."""
    from fna_lightning.tasks.translation.translator import Translator
    from fna_lightning.training.malloc import keep_freed_memory

    if args.nbest < 1 or args.batch_tokens < 1:
        raise UsageError(f"--nbest and --batch-tokens must be at least 1, got {args.nbest} and {args.batch_tokens}")
    keep_freed_memory()
    translator = Translator.open(args.checkpoint)
    decoding = override(translator.decoding, args)
    if sys.stdin.isatty():
        print("fna-lightning: type one sentence per line; finish with Ctrl-D", file=sys.stderr)
    number = 0
    must_align = args.align is not None
    for window in windows(sys.stdin.buffer):
        lines = [encode_line(content, number + place, translator) for place, content in enumerate(window, start=1)]
        number += len(lines)
        sentences = [line for line in lines if line.ids]
        sources = [line.ids for line in sentences]
        translations = translator.translate(sources, decoding, n_best=args.nbest, batch_tokens=args.batch_tokens)
        for line, hypotheses in zip(sentences, translations, strict=True):
            line.hypotheses = hypotheses
        for line in lines:
            for note in line.notes:
                print(f"fna-lightning: line {line.number} {note}", file=sys.stderr)
            for output in output_lines(line, translator, args):
                print(output)
        sys.stdout.flush()
        if must_align and sentences:
            translator.draw_alignment(sentences[0].ids, sentences[0].hypotheses[0].tokens, args.align)
            must_align = False
    if must_align:
        raise UsageError(f"--align {args.align}: there is no sentence to draw; give one on standard input")
    return 0


@dataclass
class Line:
    """A line of the input with its token ids, notes for the user and translations."""

    number: int
    ids: list[int]
    notes: list[str]
    hypotheses: "list[Hypothesis]" = field(default_factory=list)


def override(decoding: "Decoding", args: argparse.Namespace) -> "Decoding":
    """Return the search settings of the run with those of the command line."""
    if args.beam is not None and args.beam < 1:
        raise UsageError(f"--beam must be at least 1 (greedy), got {args.beam}")
    beam = decoding.beam if args.beam is None else args.beam
    if args.nbest > beam:
        raise UsageError(f"--nbest {args.nbest} is larger than the beam size {beam}; add --beam {args.nbest}")
    penalty = decoding.length_penalty if args.length_penalty is None else args.length_penalty
    return replace(decoding, beam=beam, length_penalty=penalty)


def windows(stream: BinaryIO) -> Iterator[list[bytes]]:
    """Yield the lines that are available, without waiting for more input unless a line is incomplete."""
    rest = b""
    # read1 returns the available bytes and blocks only if there are none
    while chunk := stream.read1(WINDOW):  # type: ignore[attr-defined]
        *lines, rest = (rest + chunk).split(b"\n")
        if lines:
            yield lines
    if rest:
        yield [rest]


def encode_line(content: bytes, number: int, translator: "Translator") -> Line:
    """Return a line with its token ids and with notes on invalid bytes, truncation and unknown words."""
    content = content.removesuffix(b"\r")
    encoding_notes = []
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        encoding_notes.append("is not UTF-8; invalid bytes are replaced by �")
        text = content.decode("utf-8", "replace")
    ids, notes = translator.encode(text)
    return Line(number, ids, encoding_notes + notes)


def output_lines(line: Line, translator: "Translator", args: argparse.Namespace) -> Iterator[str]:
    """Yield the output for a line of the input: at least one line."""
    prefix = f"{line.number}\t" if args.nbest > 1 else ""
    if not line.hypotheses:
        yield prefix + ("-\t" if args.scores else "")
    for hypothesis in line.hypotheses:
        score = f"{hypothesis.score:.4f}\t" if args.scores else ""
        # a line break inside a translation would break the format
        yield prefix + score + " ".join(translator.codec.decode(hypothesis.tokens).split())
