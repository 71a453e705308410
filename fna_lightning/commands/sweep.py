"""Train and test a grid of configurations, settings and seeds, and compare the runs in one table.

Every cell of the grid is a run folder. Finished cells are skipped, so rerunning the command continues an interrupted
sweep. On a cluster, `--shard i/n` gives each machine its part of the same grid.

Examples:
  fna-lightning sweep --config reviews_fna.yaml --config reviews_dp.yaml --seeds 3
  fna-lightning sweep --config reviews_fna.yaml --grid alpha=1,1.2,1.6,2 --seeds 5 --baseline alpha=2
  fna-lightning sweep --config reviews_fna.yaml --seeds 2 --set epochs=1

KEY is a setting of `fit`: a short flag such as alpha, or a long name such as model.encoder.depth.
"""

import argparse
import contextlib
import json
import os
import shlex
import traceback
from pathlib import Path
from typing import Any

from fna_lightning.commands.guard import run_guarded
from fna_lightning.commands.train import train
from fna_lightning.config.resolve import resolve_config
from fna_lightning.errors import UsageError
from fna_lightning.experiments.grid import Cell, grid_cells, parse_axis, parse_setting, parse_shard
from fna_lightning.experiments.metrics import LOSS, METRICS, default_metric
from fna_lightning.experiments.runner import run_cells
from fna_lightning.training.fit_help import SHORT_FLAGS
from fna_lightning.training.run_folder import RUN_DIR_VARIABLE, read_results
from fna_lightning.training.signals import stop_by_signal
from fna_lightning.utils.console import wide_console
from fna_lightning.utils.files import no_follow


class RefusedFlag(argparse.Action):
    """A short flag of ``fit``, which a sweep takes as the key of --set or --grid."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, *_: Any) -> None:
        if self.dest == "seed":
            raise UsageError("sweep has no --seed; --seeds N trains with the seeds 0 to N - 1")
        flag = self.dest.replace("_", "-")
        raise UsageError(
            f"sweep has no --{flag}; --set {flag}={values} sets it in every run, and --grid {flag}=A,B varies it"
        )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``sweep``."""
    for flag in SHORT_FLAGS:
        parser.add_argument(f"--{flag}", action=RefusedFlag, help=argparse.SUPPRESS)
    parser.add_argument("--config", "-c", action="append", required=True, metavar="YAML", help="repeatable")
    parser.add_argument("--grid", action="append", default=[], metavar="KEY=A,B", help="values of a key; repeatable")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="set a key in every run")
    parser.add_argument("--seeds", type=int, default=1, help="use seeds 0 ... N-1 for each setting")
    parser.add_argument(
        "--metric",
        help=f"metric that the table compares; default: the first that all runs have of {', '.join(METRICS)}",
    )
    parser.add_argument("--lower-is-better", action="store_true", help="for metrics such as a loss")
    parser.add_argument("--baseline", metavar="LABEL", help="words of the label the others are compared with")
    parser.add_argument("--paper", type=Path, metavar="YAML", help="published values: words of a label -> number")
    parser.add_argument("--trust", action="store_true", help="build any class that a file named config.yaml names")
    parser.add_argument("--workers", type=int, default=1, help="number of concurrent runs")
    parser.add_argument("--shard", default="1/1", metavar="I/N", help="run only this part of the grid")
    parser.add_argument("--no-train", action="store_true", help="do not train: report the finished runs only")
    parser.add_argument("--out", type=Path, metavar="DIR", help="default: runs/sweep_<configs>")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the table as JSON to this file")
    parser.add_argument("--publish", type=Path, metavar="NAME", help="copy the report to NAME.md, .json and .png")


@stop_by_signal()
def run(args: argparse.Namespace) -> int:
    """Run the unfinished cells, then print and write the report of all finished ones."""
    from fna_lightning.experiments.markdown import publish, read_published
    from fna_lightning.experiments.report import ReportOptions, write_report

    if args.seeds < 1 or args.workers < 1:
        raise ValueError(f"--seeds and --workers must be at least 1, got {args.seeds} and {args.workers}")
    configs = [resolve_config(name) for name in args.config]
    fixed = tuple(map(parse_setting, args.set))
    cells = grid_cells(configs, [*map(parse_axis, args.grid)], [*range(args.seeds)], fixed)
    shard, shards = parse_shard(args.shard)
    published = read_published(args.paper) if args.paper else {}
    root = args.out or Path("runs") / ("sweep_" + "+".join(Path(config).stem for config in configs))
    todo = [cell for cell in cells[shard - 1 :: shards] if not cell.finished(root)]
    console = wide_console()
    console.print(f"{len(cells)} runs in {root}, {len(todo)} to do here")
    if changed := [f"{cell.label} seed {cell.seed}" for cell in todo if cell.outdated(root)]:
        console.print(f"run again because their configuration has changed: {', '.join(changed)}", highlight=False)
    failed = 0 if args.no_train else run_cells(run_cell, todo, root, args.workers, console, trust=args.trust)
    results = {cell: read_results(cell.folder(root)) for cell in cells if cell.finished(root)}
    if results:
        metric = args.metric or default_metric(results.values())
        lower_is_better = args.lower_is_better or (args.metric is None and metric == LOSS)
        command = command_line(args, metric, lower_is_better)
        options = ReportOptions(metric, command, lower_is_better, args.baseline, args.set, published)
        report = write_report(results, root, options, len(cells) - len(results), console)
        if args.json:
            args.json.write_text(json.dumps(report, indent=2) + "\n")
        if args.publish:
            publish(root, args.publish)
    elif args.no_train:
        raise UsageError(f"no finished run of this grid in {root}: omit --no-train to train, or set --out")
    return 1 if failed else 0


def command_line(args: argparse.Namespace, metric: str, lower_is_better: bool) -> str:
    """Return a command that produces the same table on any machine."""
    words = ["fna-lightning", "sweep"]
    for option, values in (("--config", args.config), ("--grid", args.grid), ("--set", args.set)):
        words += [word for value in values for word in (option, value)]
    words += ["--seeds", str(args.seeds), "--metric", metric]
    words += ["--lower-is-better"] if lower_is_better else []
    words += ["--baseline", args.baseline] if args.baseline else []
    return shlex.join(words)


def run_cell(cell: Cell, root: Path, trust: bool = False) -> str | None:
    """Train and test one cell, with its output in log.txt of its folder; return what failed, or None.

    A job of ``run_cells``. It is here and not in ``experiments`` because it calls the command ``fit``.
    """
    folder = cell.start(root)
    os.environ[RUN_DIR_VARIABLE] = str(folder)
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(open(folder / "log.txt", "w", opener=no_follow))
        stack.enter_context(contextlib.redirect_stdout(log))
        stack.enter_context(contextlib.redirect_stderr(log))
        try:
            fit = ["fit", *(["--trust"] if trust else []), *cell.arguments(), "--trainer.enable_progress_bar=false"]
            code = run_guarded(lambda: train(fit))
            if code == 0:
                best = folder / "checkpoints" / "best.ckpt"
                # config.yaml can be trusted: `fit` has just written it from the user's configuration.
                test = ["test", "--trust", f"--config={folder / 'config.yaml'}", f"--ckpt_path={best}"]
                code = run_guarded(lambda: train(test))
        except Exception:
            traceback.print_exc()
            code = 1
    if code == 0:
        return None
    lines = [line for line in (folder / "log.txt").read_text().splitlines() if line.strip()]
    return f"failed with exit code {code}: {lines[-1] if lines else 'no output'} (see {folder / 'log.txt'})"
