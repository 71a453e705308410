"""Show where FNA helps: reconstruct real terrain from scattered measurements with four attentions.

Trains FNA, dot-product attention (qk-norm), a Gaussian and uniform attention for less than a minute each, on the
elevation sample that Matplotlib ships: the west trains, the east tests. Writes demo.png with the terrain, the
measurements, the four reconstructions, and the error against the number of measurements.

Examples:
  fna-lightning demo
  fna-lightning demo --out runs/demo --json demo.json
"""

import argparse
import json
from pathlib import Path

from fna_lightning.errors import UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``demo``."""
    parser.add_argument("--out", type=Path, default=Path("runs/demo"), metavar="DIR", help="default: %(default)s")
    parser.add_argument("--steps", type=int, default=1000, metavar="N", help="training steps (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the errors to this file")


def run(args: argparse.Namespace) -> int:
    """Train the attentions, print their errors and write the figure."""
    import torch
    from rich.table import Table

    from fna_lightning.reproduction.fields.attentions import ATTENTIONS
    from fna_lightning.reproduction.fields.demo import STARTS, demo_figure, example_terrain, map_error, reconstruct
    from fna_lightning.utils.console import wide_console
    from fna_lightning.utils.files import write_figure, write_text

    if args.steps < 1:
        raise UsageError(f"--steps must be at least 1, got {args.steps}")
    # Several threads would only slow models of this size down.
    torch.set_num_threads(1)
    console = wide_console()
    terrain, reconstructions = example_terrain(), []
    for name in STARTS:
        console.print(f"training {ATTENTIONS[name].label} ...", highlight=False)
        reconstructions.append(reconstruct(name, terrain, args.steps))
    sizes = list(reconstructions[0].errors)
    table = Table("attention", *(f"n = {size}" for size in sizes), "map in the figure", "seconds")
    table.title, table.title_justify = "mean squared error on test terrain", "left"
    for item in reconstructions:
        errors = [*item.errors.values(), map_error(terrain, item.image)]
        table.add_row(ATTENTIONS[item.attention].label, *(f"{error:.3f}" for error in errors), f"{item.seconds:.0f}")
    console.print(table)
    args.out.mkdir(parents=True, exist_ok=True)
    write_figure(args.out / "demo.png", demo_figure(terrain, reconstructions))
    if args.json:
        values = {
            item.attention: {"errors": item.errors, "map_error": map_error(terrain, item.image)}
            for item in reconstructions
        }
        write_text(args.json, json.dumps(values, indent=2) + "\n")
    console.print(
        "The weight of FNA is a power of the distance, which has no width of its own: it is narrow where the "
        "measurements are dense and wide where they are sparse. The other attentions have one width per head.",
        highlight=False,
    )
    console.print(f"picture: {args.out / 'demo.png'}", highlight=False)
    return 0
