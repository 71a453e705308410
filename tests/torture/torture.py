"""Stops runs by signals at random moments and at chosen points, resumes them and compares them with uninterrupted runs.

    python tests/torture/torture.py --signals 100 --out docs/results/torture.json

Each process of a run gets SIGTERM, SIGINT or SIGKILL, or two signals in a row; then the run is resumed. After each
signal, every checkpoint must load, the exit code must be that of the signal, and a pair of signals must end the process
within 2 seconds. At the end, weights, optimizer, schedule, metrics.csv and results.json (except times) must be
bit-identical to those of an uninterrupted run; for a changing number of ranks see comparing.py. A process that does not
end is a failure. Not part of the test suite: it takes minutes.
"""

import sys
from pathlib import Path

import fna_lightning  # before anything imports torchvision

# isort: split

sys.path.append(str(Path(__file__).parents[1]))

import argparse
import contextlib
import json
import os
import platform
import random
import signal
import subprocess
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import torch
from comparing import differences, differences_by_design, results
from points import SIGNALS, arm, send
from scenarios import SCENARIOS, Scenario

from fna_lightning.checkpoints.load import read_checkpoint
from fna_lightning.cli import main
from fna_lightning.tasks.data.cache import CACHE_VARIABLE
from fna_lightning.training import cli as training_cli  # noqa: F401 - imported once, before children are forked
from fna_lightning.training.process_tree import descendants
from fna_lightning.training.run_folder import RUN_DIR_VARIABLE

from helpers.forked import start
from helpers.imdb_folder import imdb_folder

# maximum seconds of a process without a signal, from a signal to the end, and from the second of two to the end
LONGEST = {"fork": 60.0, "ranks": 240.0}
PATIENCE = {"fork": 30.0, "ranks": 90.0}
AT_ONCE = 2.0
# maximum number of signals in one run
PER_RUN = 4
RANK = Path(__file__).with_name("rank.py")
RANDOM = "random moment"


@dataclass
class Shot:
    """A signal, or a pair of signals, and the point at which it is sent."""

    point: str
    signals: str
    call: int
    # with several ranks, the rank that receives it; None sends it to all, as Ctrl-C in a terminal does
    rank: int | None = 0
    missed: int = 0

    def miss(self) -> None:
        """Choose an earlier moment after a process has ended before it reached the point."""
        self.call = 1
        self.missed += 1
        if self.missed > 1:
            self.point = RANDOM


@dataclass
class Record:
    """Results of a scenario."""

    signals: list[dict[str, Any]] = field(default_factory=list)
    runs: int = 0
    equal: int = 0
    failures: list[str] = field(default_factory=list)
    differences: Counter[str] = field(default_factory=Counter)

    def summary(self) -> dict[str, Any]:
        """Return the results as plain values."""
        return {
            "passed": not self.failures,
            "signals": len(self.signals),
            "by_signals": dict(sorted(Counter(sent["signals"] for sent in self.signals).items())),
            "by_point": dict(sorted(Counter(sent["point"] for sent in self.signals).items())),
            "exit_codes": dict(sorted(Counter(str(sent["code"]) for sent in self.signals).items())),
            "runs": self.runs,
            "runs_equal": self.equal,
            "differences": dict(self.differences),
            "longest_seconds_from_signal_to_exit": max((sent["took"] for sent in self.signals), default=0.0),
            "failures": self.failures,
        }


class ScenarioRunner:
    """Stops, resumes and compares the runs of one scenario.

    Args:
        name: name of the scenario.
        scenario: the scenario.
        rng: generator that chooses signals and moments.
        work: working folder.
    """

    def __init__(self, name: str, scenario: Scenario, rng: random.Random, work: Path) -> None:
        self.name = name
        self.scenario = scenario
        self.rng = rng
        self.work = work
        self.record = Record()
        self.seconds = 1.0
        self.way = "fork" if scenario.ranks is None else "ranks"
        self.log = work / "log.txt"
        if scenario.cached:
            imdb_folder(work / "imdb")

    def run(self, signals: int) -> Record:
        """Send this number of signals, compare every finished run and return the results."""
        whole = self.folder("whole")
        started = time.monotonic()
        code = self.leg(whole, 0, None)
        self.seconds = time.monotonic() - started
        if code != 0:
            self.fail(f"the uninterrupted run ends with {code}")
            return self.record
        shots = self.shots(signals)
        while shots and len(self.record.failures) < 10:
            self.stopped_run(whole, shots)
        return self.record

    def shots(self, count: int) -> list[Shot]:
        """Return the signals to send, alternating between points and random moments and cycling through signals."""
        points = [moment for point in self.scenario.points for moment in (point, RANDOM)]
        signals = list(SIGNALS)
        self.rng.shuffle(signals)
        shots = []
        for number in range(count):
            # The second pass over the points combines each point with another signal.
            name = signals[(number + number // len(points)) % len(signals)]
            rank = self.rng.choice((0, 0, 1, None)) if self.scenario.ranks else 0
            point = points[number % len(points)]
            # A process reaches its end once.
            call = 1 if point in ("training end", "results write") else self.rng.randint(1, 3)
            shots.append(Shot(point, name, call, rank))
        return shots

    def stopped_run(self, whole: Path, shots: list[Shot]) -> None:
        """Stop and resume one run until it has finished and compare it; ``shots`` loses the signals that were sent."""
        number = self.record.runs
        self.record.runs += 1
        folder = self.folder(f"stopped_{number}")
        failures = len(self.record.failures)
        sent, leg = 0, 0
        while True:
            target = shots[0] if shots and sent < PER_RUN else None
            before = len(self.record.signals)
            code = self.leg(folder, leg, target)
            leg += 1
            if target is not None and len(self.record.signals) > before:
                sent += 1
                shots.pop(0)
            elif code != 0:
                self.fail(f"run {number}: ends with {code} without a signal")
            elif target is not None:
                target.miss()
            if len(self.record.failures) > failures:
                return
            if len(self.record.signals) == before:
                break
        self.compare(whole, folder, number, "")
        # Resuming a finished run must change nothing.
        if self.scenario.ranks is None and number == 0 and self.leg(folder, leg, None) == 0:
            self.compare(whole, folder, number, "resumed after its end: ")

    def compare(self, whole: Path, folder: Path, number: int, when: str) -> None:
        """Record whether a finished run equals the uninterrupted one."""
        if self.scenario.exact:
            different = differences(whole, folder)
        else:
            steps = self.scenario.effective_batch is not None
            different = differences_by_design(whole, folder, (_examples(whole), _examples(folder)), steps=steps)
        if different:
            self.fail(f"run {number}: {when}differs in {', '.join(different)}")
            self.record.differences.update(different)
        elif not when:
            self.record.equal += 1
        print(f"  run {number} {when}{'differs in ' + ', '.join(different) if different else 'is equal'}", flush=True)

    def leg(self, folder: Path, number: int, target: Shot | None) -> int | str:
        """Run one process of a run, or one per rank, and send it a signal; return the exit code or "hung"."""
        resuming = (folder / "config.yaml").is_file()
        words = ["resume", str(folder)] if resuming else self.scenario.first(self.work)
        words += self.scenario.leg(number)
        mark = self.work / "mark"
        mark.unlink(missing_ok=True)
        pid, group = self.start(folder, number, words, target, mark)
        moment = time.monotonic() + self.rng.uniform(0.0, 0.9 * self.seconds)
        limit = time.monotonic() + LONGEST[self.way]
        status: int | None = None
        while status is None and time.monotonic() < limit:
            ended, exit_status = os.waitpid(pid, os.WNOHANG)
            status = exit_status if ended else None
            if status is None and target is not None and not mark.exists():
                if target.point == RANDOM and time.monotonic() >= moment:
                    deliver_to(pid, target, mark)
            elif status is None and mark.exists():
                limit = min(limit, time.monotonic() + PATIENCE[self.way])
            time.sleep(0.002)
        ended_at = time.monotonic()
        left = self.left_behind(group)
        if status is None:
            with contextlib.suppress(OSError):
                os.killpg(group, signal.SIGKILL)
            os.waitpid(pid, 0)
        code = "hung" if status is None else os.waitstatus_to_exitcode(status)
        if mark.exists() and target is not None:
            took = round(ended_at - float(mark.read_text() or ended_at), 3)
            self.check_exit(folder, target, code, took)
        elif code == "hung":
            self.fail(f"a process without a signal does not end ({' '.join(words[:2])})")
        if left:
            self.fail(f"{len(left)} processes are left behind")
        return code

    def start(self, folder: Path, number: int, words: list[str], target: Shot | None, mark: Path) -> tuple[int, int]:
        """Start a leg; return its process id and its process group."""
        fixed = target if target is not None and target.point != RANDOM else None
        environment = {RUN_DIR_VARIABLE: str(folder), CACHE_VARIABLE: str(folder.parent / "cache")}
        if self.scenario.ranks is None:

            def work() -> int:
                os.environ.update(environment)
                if fixed is not None:
                    arm(fixed.point, fixed.signals, fixed.call, mark)
                return main(words)

            pid = start(work, self.log)
            return pid, pid
        examples = _examples(folder) / str(number)
        examples.mkdir(parents=True)
        plan: dict[str, Any] = {"record": str(examples)}
        if fixed is not None:
            plan |= {"point": fixed.point, "signals": fixed.signals, "call": fixed.call, "mark": str(mark)}
            # Only rank 0 reaches the points after training, and a process can send signals only to itself.
            plan["rank"] = (fixed.rank or 0) if fixed.point == "validation" else 0
        with self.log.open("a") as file:
            process = subprocess.Popen(
                [sys.executable, str(RANK), json.dumps(plan), *words],
                env={**os.environ, **environment, "OMP_NUM_THREADS": "1"},
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        # os.waitpid collects the exit status.
        process.returncode = 0
        return process.pid, process.pid

    def left_behind(self, group: int) -> list[int]:
        """Return the processes of a group that have not ended in time, and kill them."""
        limit = time.monotonic() + (10.0 if self.way == "fork" else 45.0)
        while (left := _group(group)) and time.monotonic() < limit:
            time.sleep(0.01)
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        return left

    def check_exit(self, folder: Path, target: Shot, code: int | str, took: float) -> None:
        """Check the exit code, the checkpoints and the time after a signal."""
        numbers = [int(number) for number in SIGNALS[target.signals]]
        # A signal before the handlers are installed, or after they are removed, kills the process.
        expected = {*(128 + number for number in numbers), *(-number for number in numbers)}
        if numbers == [signal.SIGKILL]:
            expected = {-signal.SIGKILL}
        # The exit code of rank 0 after another rank was stopped is not determined.
        other_rank = target.rank == 1 and (target.point in (RANDOM, "validation")) and self.scenario.ranks is not None
        step: Any = None
        try:
            step = checked(folder)
        except Exception as error:
            self.fail(f"{target.signals} at {target.point}: a checkpoint does not load: {error}")
        sent = {"signals": target.signals, "point": target.point, "code": code, "took": took, "step": step}
        self.record.signals.append(sent)
        print(f"  {len(self.record.signals)} {sent}", flush=True)
        if code == "hung" or (code not in expected and not (other_rank and code != 0)):
            tail = self.log.read_text(errors="replace")[-1500:]
            self.fail(f"{target.signals} at {target.point} gives exit code {code}")
            print(tail, flush=True)
        elif len(numbers) == 2 and took > AT_ONCE and not other_rank:
            self.fail(f"{target.signals} at {target.point}: {took} s from the second signal to the end")

    def fail(self, sentence: str) -> None:
        """Record a failure."""
        self.record.failures.append(sentence)
        print(f"  FAILED {sentence}", flush=True)

    def folder(self, name: str) -> Path:
        """Make the folder of a run."""
        folder = self.work / name / "version_0"
        folder.mkdir(parents=True)
        return folder


def deliver_to(pid: int, target: Shot, mark: Path) -> None:
    """Send signals to a process, to another rank or to all ranks."""
    others = descendants(pid)

    def deliver(number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            if target.rank is None:
                os.killpg(pid, number)
            else:
                os.kill(others[0] if target.rank == 1 and others else pid, number)

    if target.rank == 1 and not others:
        target.rank = 0
    send(target.signals, mark, deliver)


def checked(folder: Path) -> int:
    """Load every checkpoint and results.json of a run; return the step of the last checkpoint."""
    step = 0
    for path in folder.glob("checkpoints/*.ckpt"):
        loaded = read_checkpoint(path)
        step = loaded["global_step"] if path.name == "last.ckpt" else step
    results(folder)
    return step


def _examples(folder: Path) -> Path:
    return folder.parent / "examples"


def _group(group: int) -> list[int]:
    """Return the processes of a process group that have not ended."""
    members = []
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = Path(f"/proc/{int(name)}/stat").read_text().rpartition(")")[2].split()
            if int(fields[2]) == group and fields[0] != "Z":
                members.append(int(name))
    return members


def torture(signals: int, seed: int, only: list[str], work: Path) -> dict[str, Any]:
    """Distribute the signals over the scenarios and return the results."""
    started = time.monotonic()
    names = only or list(SCENARIOS)
    parts = {}
    for number, name in enumerate(names):
        count = signals // len(names) + (number < signals % len(names))
        print(f"{name}: {count} signals", flush=True)
        folder = work / str(number)
        folder.mkdir()
        runner = ScenarioRunner(name, SCENARIOS[name], random.Random(f"{seed} {name}"), folder)
        try:
            record = runner.run(count)
        except Exception as error:
            runner.fail(f"{type(error).__name__}: {error}")
            record = runner.record
        parts[name] = record.summary()
    return {
        "passed": all(part["passed"] for part in parts.values()),
        "signals": sum(part["signals"] for part in parts.values()),
        "by_signals": _sum(parts, "by_signals"),
        "by_point": _sum(parts, "by_point"),
        "exit_codes": _sum(parts, "exit_codes"),
        "runs": sum(part["runs"] for part in parts.values()),
        "runs_equal": sum(part["runs_equal"] for part in parts.values()),
        "longest_seconds_from_signal_to_exit": max(
            part["longest_seconds_from_signal_to_exit"] for part in parts.values()
        ),
        "scenarios": parts,
        "seed": seed,
        "seconds": round(time.monotonic() - started, 1),
        "versions": {"fna_lightning": fna_lightning.__version__, "torch": torch.__version__},
        "python": platform.python_version(),
    }


def _sum(parts: dict[str, dict[str, Any]], name: str) -> dict[str, int]:
    total: Counter[str] = Counter()
    for part in parts.values():
        total.update(part[name])
    return dict(sorted(total.items()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--signals", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", action="append", default=[], choices=SCENARIOS, metavar="SCENARIO")
    parser.add_argument("--out", type=Path, help="file for the results as JSON")
    args = parser.parse_args()
    torch.set_num_threads(1)
    # Shells start background jobs with SIGINT ignored, which children would inherit.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with tempfile.TemporaryDirectory() as folder:
        result = torture(args.signals, args.seed, args.only, Path(folder))
    print(json.dumps(result, indent=2))
    if args.out:
        args.out.write_text(json.dumps(result, indent=2) + "\n")
    sys.exit(0 if result["passed"] else 1)
