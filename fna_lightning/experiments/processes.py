"""Worker processes that never outlive the process that started them, even if that process is killed."""

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

# a job returns None, or a sentence that describes what failed
Job = Callable[..., str | None]

# seconds between the end of the parent, or its request to stop, and the SIGTERM a worker sends to itself
STOP_DELAY = 1
# seconds until that SIGTERM is repeated; the second one ends the process at once
STOP_TIMEOUT = 120


def run_jobs(
    job: Job,
    arguments: Iterable[tuple[Any, ...]],
    done: Callable[[int, str | None], None],
    *,
    workers: int,
    threads: int | None = None,
    fresh: bool = False,
) -> None:
    """Run a job once for each tuple of arguments and report every result to ``done``.

    If a job raises or its process dies, its result is a sentence that describes the failure. Ctrl-C, SIGTERM or any
    other exception in this process stops the running jobs as SIGTERM does and waits for them; a second one kills them.
    The jobs are stopped in the same way if this process ends, even by SIGKILL.

    Args:
        job: function to run; it must be importable by name in the worker processes.
        arguments: positional arguments of each run.
        done: called in this process with the number and the result of each job, in the order in which the jobs end.
        workers: maximum number of concurrent jobs.
        threads: PyTorch threads per process; None keeps PyTorch's default.
        fresh: whether to start a new process for every job instead of reusing idle ones.
    """
    waiting = deque(enumerate(arguments))
    all_workers: list[_Worker] = []
    idle: list[_Worker] = []
    busy: dict[Connection, _Worker] = {}
    context = multiprocessing.get_context("spawn")
    # Nothing is ever sent: workers see the end of this pipe when this process closes it or ends.
    ending, alive = context.Pipe(duplex=False)
    try:
        while waiting or busy:
            while waiting and len(busy) < workers:
                if not idle:
                    all_workers.append(_Worker(context, job, ending, threads))
                    idle.append(all_workers[-1])
                worker = idle.pop()
                worker.start_job(*waiting.popleft())
                busy[worker.connection] = worker
            for connection in wait(list(busy)):
                assert isinstance(connection, Connection)
                worker = busy.pop(connection)
                result = worker.result()
                if fresh or not worker.process.is_alive():
                    _join([worker])
                    all_workers.remove(worker)
                else:
                    idle.append(worker)
                done(worker.number, result)
        _join(idle)
    except BaseException:
        alive.close()
        try:
            _join(all_workers)
        except BaseException:
            for worker in all_workers:
                worker.kill()
            _join(all_workers)
            raise
        raise
    finally:
        alive.close()
        ending.close()


class _Worker:
    """A process that runs jobs one after the other.

    Attributes:
        number: number of its current or last job; -1 before the first.
        connection: this process's end of the pipe to the worker.
    """

    def __init__(self, context: SpawnContext, job: Job, ending: Connection, threads: int | None) -> None:
        self.number = -1
        self.connection, self._child_connection = context.Pipe()
        self.process = context.Process(target=_serve, args=(job, self._child_connection, ending, threads))

    def start_job(self, number: int, arguments: tuple[Any, ...]) -> None:
        """Send the arguments of a job, and start the process first if it is not running yet."""
        self.number = number
        if self.process.pid is None:
            self.process.start()
            # With one end in each process, either process sees the pipe close when the other one ends.
            self._child_connection.close()
        # If the process has died since its last job, ``result`` reports it.
        with contextlib.suppress(BrokenPipeError):
            self.connection.send(arguments)

    def result(self) -> str | None:
        """Return the result of the job, or a sentence about how its process ended."""
        try:
            result: str | None = self.connection.recv()
        except (EOFError, ConnectionResetError):
            self.process.join()
            code = self.process.exitcode or 0
            cause = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
            hint = "; the system does this when memory runs out" if code == -signal.SIGKILL else ""
            return f"its process ended without a result, {cause}{hint}"
        return result

    def kill(self) -> None:
        """Kill the process; checkpoints that a run has already saved are kept."""
        if self.process.is_alive():
            self.process.kill()


def _join(workers: list[_Worker]) -> None:
    """Close the connections of the workers and wait until their processes have ended."""
    for worker in workers:
        worker.connection.close()
    for worker in workers:
        if worker.process.pid is not None:
            worker.process.join()


def _serve(job: Job, connection: Connection, ending: Connection, threads: int | None) -> None:
    """Run jobs until the parent closes the connection; the main function of a worker."""
    # Ctrl-C reaches every process of a terminal; only the parent decides when the workers stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_stop_with_parent, args=(ending,), daemon=True).start()
    if threads is not None:
        import torch

        torch.set_num_threads(threads)
    while True:
        try:
            arguments = connection.recv()
        except (EOFError, ConnectionResetError):
            return
        try:
            result = job(*arguments)
        except Exception as error:
            result = f"{type(error).__name__}: {error}"
        try:
            connection.send(result)
        except BrokenPipeError:
            return


def _stop_with_parent(ending: Connection) -> None:
    """Send SIGTERM to this process when its parent ends or closes the pipe, so that a run saves before it ends."""
    wait([ending])
    # A signal to the whole process group reaches this process too; a second one would end a run before it has saved.
    time.sleep(STOP_DELAY)
    if SIGNAL_STATE.heard:
        time.sleep(STOP_TIMEOUT)
    while True:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(STOP_TIMEOUT)
