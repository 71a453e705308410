"""Jobs in processes of their own, none of which outlives the one that started them, however that one ends."""

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnContext
from typing import Any

from fna_lightning.training.signals import SIGNAL_STATE

# a job may say in a sentence what went wrong
Job = Callable[..., str | None]

# seconds until a worker whose parent is gone, or wants it to stop, is asked to; and asked again, to stop at once
MOMENT = 1
PATIENCE = 120


def run_jobs(
    job: Job,
    arguments: Iterable[tuple[Any, ...]],
    done: Callable[[int, str | None], None],
    *,
    workers: int,
    threads: int | None = None,
    fresh: bool = False,
) -> None:
    """Run a job once for each tuple of arguments, and tell ``done`` the number of each and what it returned.

    A job that raises, or whose process dies, has returned a sentence about it. Ctrl-C, SIGTERM or any other exception
    here asks the running jobs to stop, as SIGTERM does, and waits for them; a second one ends them at once. So does the
    end of this process, even by SIGKILL.

    Args:
        job: what to run; found by its name in the other processes.
        arguments: of each run.
        done: is called in this process, in the order in which the jobs end.
        workers: most jobs at the same time.
        threads: of PyTorch in each process; None leaves the choice to PyTorch.
        fresh: whether each job has a process of its own, instead of that of an earlier one.
    """
    waiting = deque(enumerate(arguments))
    everyone: list[_Worker] = []
    idle: list[_Worker] = []
    busy: dict[Connection, _Worker] = {}
    context = multiprocessing.get_context("spawn")
    # nothing is ever sent: it ends when this process closes its end, or ends
    ending, alive = context.Pipe(duplex=False)
    try:
        while waiting or busy:
            while waiting and len(busy) < workers:
                if not idle:
                    everyone.append(_Worker(context, job, ending, threads))
                    idle.append(everyone[-1])
                worker = idle.pop()
                worker.take(*waiting.popleft())
                busy[worker.line] = worker
            for line in wait(list(busy)):
                assert isinstance(line, Connection)
                worker = busy.pop(line)
                said = worker.answer()
                if fresh or not worker.process.is_alive():
                    _join([worker])
                    everyone.remove(worker)
                else:
                    idle.append(worker)
                done(worker.number, said)
        _join(idle)
    except BaseException:
        alive.close()
        try:
            _join(everyone)
        except BaseException:
            for worker in everyone:
                worker.end_at_once()
            _join(everyone)
            raise
        raise
    finally:
        alive.close()
        ending.close()


class _Worker:
    """A process that waits for the arguments of a job, one after the other."""

    def __init__(self, context: SpawnContext, job: Job, ending: Connection, threads: int | None) -> None:
        self.number = -1
        self.line, self.theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(job, self.theirs, ending, threads))

    def take(self, number: int, arguments: tuple[Any, ...]) -> None:
        """Begin a job."""
        self.number = number
        if self.process.pid is None:
            self.process.start()
            # with one end here and one there, the line ends with either process
            self.theirs.close()
        # one that has died since its last job is found out when it is asked for the answer
        with contextlib.suppress(BrokenPipeError):
            self.line.send(arguments)

    def answer(self) -> str | None:
        """Return what the job said, or how its process ended."""
        try:
            said: str | None = self.line.recv()
        except (EOFError, ConnectionResetError):
            self.process.join()
            code = self.process.exitcode or 0
            how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
            hint = "; the system does so when memory runs out" if code == -signal.SIGKILL else ""
            return f"its process ended without a word, {how}{hint}"
        return said

    def end_at_once(self) -> None:
        """End the process, whatever it does; what a run has saved before is kept."""
        if self.process.is_alive():
            self.process.kill()


def _join(everyone: list[_Worker]) -> None:
    """Wait until they have ended; they are given no other job."""
    for worker in everyone:
        worker.line.close()
    for worker in everyone:
        if worker.process.pid is not None:
            worker.process.join()


def _serve(job: Job, line: Connection, ending: Connection, threads: int | None) -> None:
    """Do jobs until the other end of the line is closed; the main function of a worker."""
    # Ctrl-C reaches every process of a terminal; the one that started this one says what is to be done
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_stop_when, args=(ending,), daemon=True).start()
    if threads is not None:
        import torch

        torch.set_num_threads(threads)
    while True:
        try:
            arguments = line.recv()
        except (EOFError, ConnectionResetError):
            return
        try:
            said = job(*arguments)
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
        try:
            line.send(said)
        except BrokenPipeError:
            return


def _stop_when(ending: Connection) -> None:
    """Stop this process as SIGTERM does when its parent ends or closes its end: a run saves, then ends."""
    wait([ending])
    # a signal to all processes of a job reaches this one too; a second one would end a run before it has saved
    time.sleep(MOMENT)
    if SIGNAL_STATE.heard:
        time.sleep(PATIENCE)
    while True:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(PATIENCE)
