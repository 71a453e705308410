"""Decoding speed with and without the key-value cache.

The sources are those of the test split of the checkpoint's run. Both searches must find the same translations, which is
checked. They take turns on the same sentences, and the fastest round of each counts.

Examples:
  fna-lightning bench translate runs/multi30k_strong_fna/version_0
  fna-lightning bench translate best.ckpt --sentences 200 --beam 1 --threads 2 --json decoding.json
"""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fna_lightning.errors import UsageError

if TYPE_CHECKING:
    from fna_lightning.tasks.translation.translator import Translator


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``bench translate``."""
    parser.add_argument("checkpoint", metavar="CKPT", help="checkpoint of a translation run, in its run folder")
    parser.add_argument("--sentences", type=int, default=100, help="sources of the test split (default: %(default)s)")
    parser.add_argument("--beam", type=int, default=5, help="beam size (default: %(default)s)")
    parser.add_argument("--batch-tokens", type=int, default=4096, help="tokens per batch (default: %(default)s)")
    parser.add_argument("--threads", type=int, help="number of threads; default: PyTorch's choice")
    parser.add_argument("--seconds", type=float, default=20.0, help="time for all rounds (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the measurements as JSON")
    parser.add_argument("--profile", action="store_true", help="print a profile of the cached search")


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    import torch

    from fna_lightning.bench.timing import machine, take_turns
    from fna_lightning.tasks.translation.translator import Translator

    if min(args.sentences, args.beam, args.batch_tokens) < 1:
        values = f"{args.sentences}, {args.beam} and {args.batch_tokens}"
        raise UsageError(f"--sentences, --beam and --batch-tokens must be at least 1, got {values}")
    if args.threads:
        torch.set_num_threads(args.threads)
    machine_facts = machine()
    translator = Translator.open(args.checkpoint)
    sources = split_source_ids(args)
    searches = {
        "cached": lambda: decode(translator, sources, args, cached=True),
        "uncached": lambda: decode(translator, sources, args, cached=False),
    }
    translations = {name: search() for name, search in searches.items()}
    same = sum(
        cached == uncached for cached, uncached in zip(translations["cached"], translations["uncached"], strict=True)
    )
    seconds = take_turns(searches, args.seconds, rounds=5)
    report: dict[str, Any] = {
        "checkpoint": str(args.checkpoint),
        "sentences": len(sources),
        "source_tokens": sum(map(len, sources)),
        "target_tokens": sum(map(len, translations["cached"])),
        "beam": args.beam,
        "batch_tokens": args.batch_tokens,
        "seconds": seconds,
        "speedup": seconds["uncached"] / seconds["cached"],
        "sentences_per_second": len(sources) / seconds["cached"],
        "same_translations": same,
        "machine": machine_facts,
    }
    print(
        f"{len(sources)} sentences, beam {args.beam}, {torch.get_num_threads()} threads: "
        f"{report['sentences_per_second']:.1f} sentences/s, {report['target_tokens'] / seconds['cached']:.0f} tokens/s"
        "\n"
        f"with cache {seconds['cached']:.2f} s, without {seconds['uncached']:.2f} s: {report['speedup']:.1f} times as "
        "fast\n"
        f"{same} of {len(sources)} translations are the same with and without the cache"
    )
    if args.profile:
        with torch.profiler.profile() as profile:
            searches["cached"]()
        print(profile.key_averages().table(sort_by="self_cpu_time_total", row_limit=12, max_name_column_width=40))
    if args.json:
        args.json.write_text(json.dumps(report, indent=2) + "\n")
    return 0


def split_source_ids(args: argparse.Namespace) -> list[list[int]]:
    """Return the token ids of sources spread evenly over the test split."""
    from fna_lightning.analysis import load

    model = load(args.checkpoint)
    # The translator appends the end token itself.
    return [example.input[:-1] for example in model.split_examples("test", args.sentences, model.codec.max_length)]


def decode(
    translator: "Translator", sources: list[list[int]], args: argparse.Namespace, *, cached: bool
) -> list[list[int]]:
    """Return the best translation of each source, decoded in batches of similar length."""
    from dataclasses import replace

    decoding = replace(translator.decoding, beam=args.beam)
    order = sorted(range(len(sources)), key=lambda index: -len(sources[index]))
    best: dict[int, list[int]] = {}
    while order:
        size = max(1, args.batch_tokens // (len(sources[order[0]]) + 1))
        batch, order = order[:size], order[size:]
        hypotheses = translator.translate([sources[index] for index in batch], decoding, cached=cached)
        best |= {index: beam[0].tokens for index, beam in zip(batch, hypotheses, strict=True)}
    return [best[index] for index in range(len(sources))]
