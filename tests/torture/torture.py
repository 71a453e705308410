"""Stops a run by signals at random moments until it has finished in spite of them, again and again.

    python tests/torture/torture.py --signals 50 --out docs/results/torture.json

Each process of a run gets SIGTERM, SIGINT or SIGKILL after a random time, whatever it is doing: starting, training,
validating or writing a checkpoint. Then the run is resumed. After each signal every checkpoint must load and the exit
code must be the signal's; at the end weights, optimiser and every logged number must be those of a run that was never
stopped, bit for bit. Not part of the test suite: it takes minutes.
"""

import argparse
import json
import os
import platform
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import fna_lightning
from fna_lightning.checkpoint import read_checkpoint
from fna_lightning.cli import main
from fna_lightning.run_folder import RUN_DIR_VARIABLE

KINDS = (signal.SIGTERM, signal.SIGINT, signal.SIGKILL)
SETTINGS = [
    *("--config", "reviews_fna.yaml", "--data.train_size=640", "--data.eval_size=200", "--data.longest=60"),
    *("--data.batch_size=8", "--model.encoder.dropout=0.1", "--model.encoder.dim=16", "--trainer.max_epochs=4"),
    *(
        "--trainer.enable_model_summary=false",
        "--trainer.log_every_n_steps=1",
        "--trainer.enable_progress_bar=false",
        "--trainer.accelerator=cpu",
    ),
    *("--trainer.callbacks+=LastCheckpoint", "--trainer.callbacks.minutes=0.005"),
]


def start(work: Callable[[], int], log: Path) -> int:
    """Run ``work`` in a child that has everything imported already; return its process id."""
    child = os.fork()
    if child:
        return child
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with log.open("a") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        code = work()
    except BaseException as error:
        print(repr(error), file=sys.stderr)
        code = 99
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def fit(folder: Path) -> int:
    """Begin the run."""
    os.environ[RUN_DIR_VARIABLE] = str(folder)
    return main(["fit", *SETTINGS])


def resume(folder: Path) -> int:
    """Go on with it, or begin it if it was stopped before its configuration was written."""
    return main(["resume", str(folder)]) if (folder / "config.yaml").is_file() else fit(folder)


def checked(folder: Path) -> int:
    """Load every checkpoint of a run; return the step of the last one."""
    step = 0
    for path in folder.glob("checkpoints/*.ckpt"):
        found = read_checkpoint(path)
        step = found["global_step"] if path.name == "last.ckpt" else step
    return step


def same(one: Path, other: Path) -> list[str]:
    """Return what differs between two finished runs."""
    states = [read_checkpoint(run / "checkpoints/last.ckpt") for run in (one, other)]
    different = [] if (one / "metrics.csv").read_bytes() == (other / "metrics.csv").read_bytes() else ["metrics.csv"]
    for part in ("state_dict", "optimizer_states"):
        flat = [torch.utils._pytree.tree_leaves(state[part]) for state in states]
        equal = all(torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in zip(*flat, strict=True))
        different += [] if equal else [part]
    best = [read_checkpoint(run / "checkpoints/best.ckpt")["state_dict"] for run in (one, other)]
    if not all(torch.equal(best[0][name], best[1][name]) for name in best[0]):
        different.append("best.ckpt")
    return different


def torture(signals: int, seed: int, work: Path) -> dict[str, Any]:
    """Send ``signals`` signals in as many runs as that takes, and finish the last one; return what happened."""
    rng = random.Random(seed)
    whole, log = work / "whole/version_0", work / "log.txt"
    whole.mkdir(parents=True)
    began = time.monotonic()
    assert os.waitstatus_to_exitcode(os.waitpid(start(lambda: fit(whole), log), 0)[1]) == 0, log.read_text()
    seconds = time.monotonic() - began
    sent: list[dict[str, Any]] = []
    runs = 0
    while len(sent) < signals:
        folder = work / f"stopped_{runs}/version_0"
        folder.mkdir(parents=True)
        while True:
            child = start(lambda folder=folder: resume(folder), log)
            kind = rng.choice(KINDS) if len(sent) < signals else None
            delay = rng.uniform(0.0, 0.5 * seconds)
            until = time.monotonic() + delay
            done, status = 0, 0
            while not done and (kind is None or time.monotonic() < until):
                done, status = os.waitpid(child, os.WNOHANG)
                time.sleep(0.002)
            if not done:
                os.kill(child, kind)
                asked = time.monotonic()
                _, status = os.waitpid(child, 0)
                took = time.monotonic() - asked
            code = os.waitstatus_to_exitcode(status)
            step = checked(folder)
            if done or code == 0:
                assert code == 0, f"exit code {code}\n{log.read_text()[-3000:]}"
                break
            wanted = -signal.SIGKILL if kind == signal.SIGKILL else 128 + kind
            # before Python has put its handlers in place, a signal ends a process by itself
            assert code in (wanted, -kind), f"{kind.name} gave {code}, not {wanted}\n{log.read_text()[-3000:]}"
            sent.append({"signal": kind.name, "after": round(delay, 3), "code": code, "step": step, "took": took})
            print(len(sent), sent[-1], flush=True)
        runs += 1
        different = same(whole, folder)
        assert not different, f"run {runs} differs in {', '.join(different)}; see {work}"
        print(f"run {runs} is bit-equal after {len(sent)} signals", flush=True)
    return {
        "signals": len(sent),
        "by_kind": dict(Counter(one["signal"] for one in sent)),
        "exit_codes": {str(code): count for code, count in sorted(Counter(one["code"] for one in sent).items())},
        "runs_finished_in_spite_of_them": runs,
        "bit_equal": True,
        "compared": ["state_dict", "optimizer_states", "best.ckpt", "metrics.csv"],
        "longest_seconds_from_signal_to_exit": round(max(one["took"] for one in sent), 2),
        "steps_of_a_run": checked(whole),
        "seed": seed,
        "seconds": round(time.monotonic() - began, 1),
        "versions": {"fna_lightning": fna_lightning.__version__, "torch": torch.__version__},
        "python": platform.python_version(),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--signals", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="write the result as JSON")
    args = parser.parse_args()
    torch.set_num_threads(1)
    import fna_lightning.training_cli

    with tempfile.TemporaryDirectory() as folder:
        result = torture(args.signals, args.seed, Path(folder))
    print(json.dumps(result, indent=2))
    if args.out:
        args.out.write_text(json.dumps(result, indent=2) + "\n")
