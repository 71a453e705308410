"""Time decoding: with and without the key-value cache, and sentences a second, in one run.

Sources are those of the test split of the run a checkpoint belongs to. The cached and the plain search find the same
translations, which is checked; they take turns on the same sentences, and each one's fastest round counts.

Examples:
  fna-lightning bench translate runs/multi30k_strong_fna/version_0/checkpoints/best.ckpt
  fna-lightning bench translate best.ckpt --sentences 200 --beam 1 --threads 2 --json decoding.json
"""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fna_lightning.errors import UsageError

if TYPE_CHECKING:
    from fna_lightning.tasks.translation.checkpointed_translator import CheckpointedTranslator


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("checkpoint", metavar="CKPT", help="a checkpoint of a translation run, in its run folder")
    parser.add_argument("--sentences", type=int, default=100, help="sources of the test split (default: %(default)s)")
    parser.add_argument("--beam", type=int, default=5, help="hypotheses kept (default: %(default)s)")
    parser.add_argument("--batch-tokens", type=int, default=4096, help="tokens at once (default: %(default)s)")
    parser.add_argument("--threads", type=int, help="threads of PyTorch; default: PyTorch's own choice")
    parser.add_argument("--seconds", type=float, default=20.0, help="time for all rounds (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the measurements as JSON")
    parser.add_argument("--profile", action="store_true", help="show where the time of the cached search goes")


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    import torch

    from fna_lightning.bench.timing import machine, take_turns
    from fna_lightning.tasks.translation.checkpointed_translator import CheckpointedTranslator

    if min(args.sentences, args.beam, args.batch_tokens) < 1:
        given = f"{args.sentences}, {args.beam} and {args.batch_tokens}"
        raise UsageError(f"--sentences, --beam and --batch-tokens must be at least 1, got {given}")
    if args.threads:
        torch.set_num_threads(args.threads)
    before = machine()
    translator = CheckpointedTranslator.open(args.checkpoint)
    sources = sources_of(args)
    ways = {
        "cached": lambda: decode(translator, sources, args, cached=True),
        "anew": lambda: decode(translator, sources, args, cached=False),
    }
    said = {name: way() for name, way in ways.items()}
    same = sum(one == other for one, other in zip(*said.values(), strict=True))
    seconds = take_turns(ways, args.seconds, rounds=5)
    report: dict[str, Any] = {
        "checkpoint": str(args.checkpoint),
        "sentences": len(sources),
        "source_tokens": sum(map(len, sources)),
        "target_tokens": sum(map(len, said["cached"])),
        "beam": args.beam,
        "batch_tokens": args.batch_tokens,
        "seconds": seconds,
        "speedup": seconds["anew"] / seconds["cached"],
        "sentences_per_second": len(sources) / seconds["cached"],
        "same_translations": same,
        "machine": before,
    }
    print(
        f"{len(sources)} sentences, beam {args.beam}, {torch.get_num_threads()} threads: "
        f"{report['sentences_per_second']:.1f} sentences/s, {report['target_tokens'] / seconds['cached']:.0f} tokens/s"
        "\n"
        f"with the cache {seconds['cached']:.2f} s, without {seconds['anew']:.2f} s: {report['speedup']:.1f} times\n"
        f"{same} of {len(sources)} translations are the same with and without it"
    )
    if args.profile:
        with torch.profiler.profile() as profile:
            ways["cached"]()
        print(profile.key_averages().table(sort_by="self_cpu_time_total", row_limit=12, max_name_column_width=40))
    if args.json:
        args.json.write_text(json.dumps(report, indent=2) + "\n")
    return 0


def sources_of(args: argparse.Namespace) -> list[list[int]]:
    """Return token ids of sources spread evenly over the test split."""
    from fna_lightning.analysis.study_models import open_model

    model = open_model(args.checkpoint)
    # the end is put there by the translator
    return [example.input[:-1] for example in model.split_examples("test", args.sentences, model.codec.max_length)]


def decode(
    translator: "CheckpointedTranslator", sources: list[list[int]], args: argparse.Namespace, *, cached: bool
) -> list[list[int]]:
    """Return the best translation of each source, decoded in batches of similar lengths."""
    from dataclasses import replace

    decoding = replace(translator.decoding, beam=args.beam)
    order = sorted(range(len(sources)), key=lambda place: -len(sources[place]))
    found: dict[int, list[int]] = {}
    while order:
        size = max(1, args.batch_tokens // (len(sources[order[0]]) + 1))
        batch, order = order[:size], order[size:]
        best = translator.translate([sources[place] for place in batch], decoding, cached=cached)
        found |= {place: some[0].tokens for place, some in zip(batch, best, strict=True)}
    return [found[place] for place in range(len(sources))]
