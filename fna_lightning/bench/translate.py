"""Decoding speed with and without the key-value cache, or against transformers and CTranslate2.

The sources are those of the test split of the checkpoint's run. Both searches must find the same translations, which is
checked. They take turns on the same sentences, and the fastest round of each counts.

--against needs no checkpoint: a random Transformer with 4 + 4 layers of width 128 translates 96 sentences to 16 tokens
each, by our beam search, by `generate` of a Marian model of transformers and by CTranslate2, with the same weights.

Examples:
  fna-lightning bench translate runs/multi30k_strong_fna/version_0
  fna-lightning bench translate best.ckpt --sentences 200 --beam 1 --threads 2 --json decoding.json
  fna-lightning bench translate --against transformers,ctranslate2 --threads 2
"""

import argparse
import json
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fna_lightning.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

    from fna_lightning.bench.marian import Work
    from fna_lightning.nn import Seq2Seq
    from fna_lightning.tasks.translation.translator import Translator

# a search with given weights, and their number
Peer = tuple[Callable[[], list[list[int]]], int]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``bench translate``."""
    parser.add_argument(
        "checkpoint", nargs="?", metavar="CKPT", help="checkpoint of a translation run, in its run folder"
    )
    parser.add_argument(
        "--against", metavar="NAMES", help="compare with transformers, ctranslate2 or both; takes no checkpoint"
    )
    parser.add_argument("--sentences", type=int, help="sources (default: 100 of the test split; 96 with --against)")
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
    from fna_lightning.training.malloc import keep_freed_memory

    if args.sentences is None:
        args.sentences = 96 if args.against else 100
    if min(args.sentences, args.beam, args.batch_tokens) < 1:
        values = f"{args.sentences}, {args.beam} and {args.batch_tokens}"
        raise UsageError(f"--sentences, --beam and --batch-tokens must be at least 1, got {values}")
    if (args.checkpoint is None) is (args.against is None):
        raise UsageError("give either a checkpoint, or --against, which needs none")
    keep_freed_memory()
    if args.threads:
        torch.set_num_threads(args.threads)
    if args.against:
        return compare(args)
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


def compare(args: argparse.Namespace) -> int:
    """Measure our beam search and those of the peers with the same weights, and print the ratios."""
    import torch

    from fna_lightning.bench.marian import Work, search
    from fna_lightning.bench.timing import machine, take_turns

    names = list(dict.fromkeys(args.against.split(",")))
    unknown = [name for name in names if name not in PEERS]
    if unknown:
        raise UsageError(f"--against takes {' and '.join(PEERS)}, separated by a comma; got {unknown[0]!r}")
    work = Work(sentences=args.sentences, beam=args.beam)
    torch.manual_seed(0)
    network, sources = work.network(), work.sources()
    parameters = {"fna-lightning": sum(p.numel() for p in network.parameters())}
    searches: dict[str, Callable[[], list[list[int]]]] = {"fna-lightning": lambda: search(network, sources, work)}
    with ExitStack() as stack, torch.inference_mode():
        for name in names:
            try:
                searches[name], parameters[name] = PEERS[name](network, sources, work, stack)
            except ImportError as error:
                raise UsageError(f"--against {name} needs {name}: pip install {name} ({error})") from error
        translations = {name: run_search() for name, run_search in searches.items()}
        seconds = take_turns(searches, args.seconds, rounds=9)
    ours = translations.pop("fna-lightning")
    same = {name: sum(a == b for a, b in zip(ours, found, strict=True)) for name, found in translations.items()}
    report: dict[str, Any] = {
        "work": asdict(work),
        "parameters": parameters,
        "seconds": seconds,
        "ratios": {name: seconds["fna-lightning"] / seconds[name] for name in names},
        "same_translations": same,
        "machine": machine(*names),
    }
    print(
        f"{work.sentences} sentences, beam {work.beam}, {work.target_tokens} tokens each, {torch.get_num_threads()} "
        f"threads: {seconds['fna-lightning']:.3f} s"
    )
    for name in names:
        print(
            f"{name} {seconds[name]:.3f} s, fna-lightning / {name}: {report['ratios'][name]:.2f}; {same[name]} of "
            f"{work.sentences} translations are the same"
        )
    if args.json:
        args.json.write_text(json.dumps(report, indent=2) + "\n")
    return 0


def transformers_peer(network: "Seq2Seq", sources: "Tensor", work: "Work", stack: ExitStack) -> Peer:
    """Return the search of a Marian model of transformers, and the number of its parameters."""
    from fna_lightning.bench.marian import further_parameters, generate, marian_of

    marian = marian_of(network, work)
    ours, theirs = (sum(p.numel() for p in model.parameters()) for model in (network, marian))
    if theirs - ours != further_parameters(network, work):
        raise RuntimeError(f"Marian has {theirs:,} parameters and ours {ours:,}, which is not the same model")
    return lambda: generate(marian, sources, work), theirs


def ctranslate2_peer(network: "Seq2Seq", sources: "Tensor", work: "Work", stack: ExitStack) -> Peer:
    """Return the search of CTranslate2, and the number of the parameters that it was given."""
    from fna_lightning.bench.ctranslate import CTranslate2, save_model

    folder = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "model"
    save_model(network, work, folder)
    peer = stack.enter_context(closing(CTranslate2(folder, sources, work)))
    return peer.translate, sum(p.numel() for p in network.parameters())


# name on the command line and of the package: returns the search with the weights of the network
PEERS: "dict[str, Callable[[Seq2Seq, Tensor, Work, ExitStack], Peer]]" = {
    "transformers": transformers_peer,
    "ctranslate2": ctranslate2_peer,
}


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
