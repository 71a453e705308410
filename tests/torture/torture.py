"""Stops runs by signals at random moments and at chosen places, resumes them, and compares them with whole runs.

    python tests/torture/torture.py --signals 100 --out docs/results/torture.json

Each process of a run gets SIGTERM, SIGINT or SIGKILL, or two signals in a row, whatever it is doing; then the run is
resumed. After each signal every checkpoint must load, the exit code must be the signal's and a pair of signals must end
the process in 2 seconds. At the end weights, optimiser, schedule, metrics.csv and results.json (but for the times) must
be those of a run that was never stopped, bit for bit; with another number of ranks, see comparing.py. A process that
does not end is a failure. Not part of the test suite: it takes minutes.
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
from points import KINDS, aim, send
from scenarios import SCENARIOS, Scenario

from fna_lightning.checkpoints.load import read_checkpoint
from fna_lightning.cli import main
from fna_lightning.tasks.data.cache import CACHE_VARIABLE
from fna_lightning.training import cli as training_cli  # noqa: F401 - imported once, before the children are forked
from fna_lightning.training.process_tree import descendants
from fna_lightning.training.run_folder import RUN_DIR_VARIABLE

from helpers.forked import start
from helpers.imdb_folder import imdb_folder

# seconds: of a process that is not told to stop, from one signal to the end, from the second of two to the end
LONGEST = {"fork": 60.0, "ranks": 240.0}
PATIENCE = {"fork": 30.0, "ranks": 90.0}
AT_ONCE = 2.0
# signals in one run; then it may finish
PER_RUN = 4
RANK = Path(__file__).with_name("rank.py")
RANDOM = "random moment"


@dataclass
class Aim:
    """One signal, or a pair of them, and where it is sent."""

    place: str
    kind: str
    call: int
    # with several ranks: the rank that gets it; None sends it to all, as Ctrl-C in a terminal does
    rank: int | None = 0
    missed: int = 0

    def miss(self) -> None:
        """Aim at something easier after a process has ended before it came there."""
        self.call = 1
        self.missed += 1
        if self.missed > 1:
            self.place = RANDOM


@dataclass
class Record:
    """What happened in a scenario."""

    signals: list[dict[str, Any]] = field(default_factory=list)
    runs: int = 0
    equal: int = 0
    failures: list[str] = field(default_factory=list)
    differences: Counter[str] = field(default_factory=Counter)

    def summary(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "passed": not self.failures,
            "signals": len(self.signals),
            "by_kind": dict(sorted(Counter(sent["kind"] for sent in self.signals).items())),
            "by_place": dict(sorted(Counter(sent["place"] for sent in self.signals).items())),
            "exit_codes": dict(sorted(Counter(str(sent["code"]) for sent in self.signals).items())),
            "runs": self.runs,
            "runs_equal": self.equal,
            "differences": dict(self.differences),
            "longest_seconds_from_signal_to_exit": max((sent["took"] for sent in self.signals), default=0.0),
            "failures": self.failures,
        }


class Storm:
    """The runs of one scenario.

    Args:
        name: of the scenario.
        scenario: what is run.
        rng: chooses signals and moments.
        work: a folder for everything.
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

    def blow(self, signals: int) -> Record:
        """Send so many signals and compare every run that has finished in spite of them; return what happened."""
        whole = self.folder("whole")
        begun = time.monotonic()
        code = self.leg(whole, 0, None)
        self.seconds = time.monotonic() - begun
        if code != 0:
            self.fail(f"the run that is not stopped ends with {code}")
            return self.record
        aims = self.aims(signals)
        while aims and len(self.record.failures) < 10:
            self.stopped_run(whole, aims)
        return self.record

    def aims(self, count: int) -> list[Aim]:
        """Return what is sent, in this order: each chosen place and a random moment in turn, each kind in turn."""
        places = [place for point in self.scenario.points for place in (point, RANDOM)]
        kinds = list(KINDS)
        self.rng.shuffle(kinds)
        chosen = []
        for number in range(count):
            # the second way round the kinds meets each place with another one
            kind = kinds[(number + number // len(places)) % len(kinds)]
            rank = self.rng.choice((0, 0, 1, None)) if self.scenario.ranks else 0
            place = places[number % len(places)]
            # a process comes to its end once
            call = 1 if place in ("training end", "results write") else self.rng.randint(1, 3)
            chosen.append(Aim(place, kind, call, rank))
        return chosen

    def stopped_run(self, whole: Path, aims: list[Aim]) -> None:
        """Stop and resume one run until it has finished, and compare it; signals that were sent leave the list."""
        number = self.record.runs
        self.record.runs += 1
        folder = self.folder(f"stopped_{number}")
        failures = len(self.record.failures)
        sent, leg = 0, 0
        while True:
            target = aims[0] if aims and sent < PER_RUN else None
            before = len(self.record.signals)
            code = self.leg(folder, leg, target)
            leg += 1
            if target is not None and len(self.record.signals) > before:
                sent += 1
                aims.pop(0)
            elif code != 0:
                self.fail(f"run {number}: ends with {code} without a signal")
            elif target is not None:
                target.miss()
            if len(self.record.failures) > failures:
                return
            if len(self.record.signals) == before:
                break
        self.compare(whole, folder, number, "")
        # a run that has finished can be resumed as well, and nothing changes
        if self.scenario.ranks is None and number == 0 and self.leg(folder, leg, None) == 0:
            self.compare(whole, folder, number, "resumed after its end: ")

    def compare(self, whole: Path, folder: Path, number: int, when: str) -> None:
        """Note whether a finished run is what it must be."""
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

    def leg(self, folder: Path, number: int, target: Aim | None) -> int | str:
        """Run one process of a run, or one for each rank, and send it a signal; return the exit code or "hung"."""
        begun = (folder / "config.yaml").is_file()
        words = ["resume", str(folder)] if begun else self.scenario.first(self.work)
        words += self.scenario.leg(number)
        mark = self.work / "mark"
        mark.unlink(missing_ok=True)
        pid, group = self.start(folder, number, words, target, mark)
        moment = time.monotonic() + self.rng.uniform(0.0, 0.9 * self.seconds)
        limit = time.monotonic() + LONGEST[self.way]
        status: int | None = None
        while status is None and time.monotonic() < limit:
            done, found = os.waitpid(pid, os.WNOHANG)
            status = found if done else None
            if status is None and target is not None and not mark.exists():
                if target.place == RANDOM and time.monotonic() >= moment:
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
            self.note(folder, target, code, took)
        elif code == "hung":
            self.fail(f"a process without a signal does not end ({' '.join(words[:2])})")
        if left:
            self.fail(f"{len(left)} processes stay behind")
        return code

    def start(self, folder: Path, number: int, words: list[str], target: Aim | None, mark: Path) -> tuple[int, int]:
        """Start a leg; return its process and its process group."""
        fixed = target if target is not None and target.place != RANDOM else None
        environment = {RUN_DIR_VARIABLE: str(folder), CACHE_VARIABLE: str(folder.parent / "cache")}
        if self.scenario.ranks is None:

            def work() -> int:
                os.environ.update(environment)
                if fixed is not None:
                    aim(fixed.place, fixed.kind, fixed.call, mark)
                return main(words)

            pid = start(work, self.log)
            return pid, pid
        examples = _examples(folder) / str(number)
        examples.mkdir(parents=True)
        plan: dict[str, Any] = {"record": str(examples)}
        if fixed is not None:
            plan |= {"point": fixed.place, "kind": fixed.kind, "call": fixed.call, "mark": str(mark)}
            # the last places are those of the first rank alone; a process can send a signal to itself only
            plan["rank"] = (fixed.rank or 0) if fixed.place == "validation" else 0
        with self.log.open("a") as file:
            process = subprocess.Popen(
                [sys.executable, str(RANK), json.dumps(plan), *words],
                env={**os.environ, **environment, "OMP_NUM_THREADS": "1"},
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        # the status is asked for by os.waitpid
        process.returncode = 0
        return process.pid, process.pid

    def left_behind(self, group: int) -> list[int]:
        """Return the processes of a group that have not ended in time, and end them."""
        limit = time.monotonic() + (10.0 if self.way == "fork" else 45.0)
        while (left := _group(group)) and time.monotonic() < limit:
            time.sleep(0.01)
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        return left

    def note(self, folder: Path, target: Aim, code: int | str, took: float) -> None:
        """Check how a process has ended after a signal."""
        numbers = [int(number) for number in KINDS[target.kind]]
        # before its handlers are in place, or after, a signal ends a process by itself
        wanted = {*(128 + number for number in numbers), *(-number for number in numbers)}
        if numbers == [signal.SIGKILL]:
            wanted = {-signal.SIGKILL}
        # what the first rank makes of the death of another one is not its choice
        alien = target.rank == 1 and (target.place in (RANDOM, "validation")) and self.scenario.ranks is not None
        step: Any = None
        try:
            step = checked(folder)
        except Exception as error:
            self.fail(f"{target.kind} at {target.place}: a checkpoint does not load: {error}")
        sent = {"kind": target.kind, "place": target.place, "code": code, "took": took, "step": step}
        self.record.signals.append(sent)
        print(f"  {len(self.record.signals)} {sent}", flush=True)
        if code == "hung" or (code not in wanted and not (alien and code != 0)):
            tail = self.log.read_text(errors="replace")[-1500:]
            self.fail(f"{target.kind} at {target.place} gives exit code {code}")
            print(tail, flush=True)
        elif len(numbers) == 2 and took > AT_ONCE and not alien:
            self.fail(f"{target.kind} at {target.place}: {took} s from the second signal to the end")

    def fail(self, sentence: str) -> None:
        """Note a failure and go on."""
        self.record.failures.append(sentence)
        print(f"  FAILED {sentence}", flush=True)

    def folder(self, name: str) -> Path:
        """Make the folder of a run."""
        folder = self.work / name / "version_0"
        folder.mkdir(parents=True)
        return folder


def deliver_to(pid: int, target: Aim, mark: Path) -> None:
    """Send the signals of a random moment to a process, to another rank or to all of them."""
    others = descendants(pid)

    def deliver(number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            if target.rank is None:
                os.killpg(pid, number)
            else:
                os.kill(others[0] if target.rank == 1 and others else pid, number)

    if target.rank == 1 and not others:
        target.rank = 0
    send(target.kind, mark, deliver)


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
    """Share the signals out among the scenarios and return what happened."""
    began = time.monotonic()
    names = only or list(SCENARIOS)
    parts = {}
    for number, name in enumerate(names):
        count = signals // len(names) + (number < signals % len(names))
        print(f"{name}: {count} signals", flush=True)
        folder = work / str(number)
        folder.mkdir()
        storm = Storm(name, SCENARIOS[name], random.Random(f"{seed} {name}"), folder)
        try:
            record = storm.blow(count)
        except Exception as error:
            storm.fail(f"{type(error).__name__}: {error}")
            record = storm.record
        parts[name] = record.summary()
    return {
        "passed": all(part["passed"] for part in parts.values()),
        "signals": sum(part["signals"] for part in parts.values()),
        "by_kind": _sum(parts, "by_kind"),
        "by_place": _sum(parts, "by_place"),
        "exit_codes": _sum(parts, "exit_codes"),
        "runs": sum(part["runs"] for part in parts.values()),
        "runs_equal": sum(part["runs_equal"] for part in parts.values()),
        "longest_seconds_from_signal_to_exit": max(
            part["longest_seconds_from_signal_to_exit"] for part in parts.values()
        ),
        "scenarios": parts,
        "seed": seed,
        "seconds": round(time.monotonic() - began, 1),
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
    parser.add_argument("--out", type=Path, help="write the result as JSON")
    args = parser.parse_args()
    torch.set_num_threads(1)
    # a shell starts background jobs with SIGINT ignored, which their children would inherit
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with tempfile.TemporaryDirectory() as folder:
        result = torture(args.signals, args.seed, args.only, Path(folder))
    print(json.dumps(result, indent=2))
    if args.out:
        args.out.write_text(json.dumps(result, indent=2) + "\n")
    sys.exit(0 if result["passed"] else 1)
