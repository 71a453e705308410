"""Stopping a process by signals: the first SIGINT or SIGTERM asks it to stop, the second one ends it at once."""

import contextlib
import os
import select
import signal
import socket
import threading
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

from fna_lightning.checkpoints.exact.launcher import release_observed_processes
from fna_lightning.training.process_tree import kill_descendants

SIGNALS = (signal.SIGINT, signal.SIGTERM)

# seconds for cleaning up after a signal that arrives while there is nothing to save
GRACE = 10.0

# no signal has this number
END_OF_WATCH = 0


class StoppedError(BaseException):
    """A process that a signal stops; not an ``Exception``, so that no handler of errors catches it on its way out.

    Args:
        number: the signal.
        message: what to tell the user.
    """

    def __init__(self, number: int, message: str = "") -> None:
        super().__init__(message or f"stopped by {signal.Signals(number).name}")
        self.number = number


class Signals:
    """What this process has received. Signals belong to the process, so there is one instance.

    Attributes:
        number: the first signal since the outermost ``stop_by_signal`` began; 0 if there was none.
        deferred: whether the first signal is only recorded; otherwise it raises ``StoppedError`` in the main thread.
        grace: seconds after a first signal that is not deferred until the process is ended; None waits for ever.
        heard: whether this process has ever received one.
    """

    def __init__(self) -> None:
        self.number = 0
        self.deferred = False
        self.grace: float | None = None
        self.heard = False
        self._watcher: _Watcher | None = None
        self._depth = 0
        self._before: dict[int, object] = {}

    def enter(self) -> None:
        """Handle the signals until the ``leave`` that belongs to this call."""
        self._depth += 1
        if self._depth == 1:
            self.number, self.deferred, self.grace = 0, False, None
            self._before = {number: signal.getsignal(number) for number in SIGNALS}
            self._watcher = _Watcher(self)
            self.install()

    def leave(self) -> None:
        """Give the signals back to whoever handled them before."""
        self._depth -= 1
        if self._depth == 0:
            for number, handler in self._before.items():
                if handler is not None:
                    signal.signal(number, handler)  # type: ignore[arg-type]
            if self._watcher is not None:
                self._watcher.close()
                self._watcher = None

    def install(self) -> None:
        """Install the handler, also in place of one that was installed since."""
        for number in SIGNALS:
            # a shell starts background jobs with SIGINT ignored, and that must stay so
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.heard = True
        if self.number:
            # the watcher ends the process
            return
        self.number = number
        if not self.deferred:
            raise StoppedError(number)

    @property
    def active(self) -> bool:
        """Whether the signals are handled here."""
        return self._depth > 0

    def exit_code(self, code: int) -> int:
        """Return the exit code of a command that would have ended with ``code``."""
        return 128 + self.number if self.number else code

    def after_fork(self) -> None:
        """Make a forked child independent: its signals are not its parent's, and it has no watcher."""
        if self._watcher is not None:
            self._watcher.abandon()
            self._watcher = None
        self._depth = 0


class _Watcher:
    """A thread that sees every signal at once, also while the main thread is blocked in C code.

    Python runs signal handlers between two bytecodes of the main thread: never, as long as that thread waits in a
    collective operation for a process that does not answer. The C part of the handler, however, writes the number of
    the signal to the wake-up descriptor immediately.
    """

    def __init__(self, signals: Signals) -> None:
        self._signals = signals
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        self._previous = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        self._thread = threading.Thread(target=self._watch, name="signal-watcher", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        first = 0
        while True:
            try:
                received = self._reader.recv(64)
            except TimeoutError:
                end_at_once(first, f"not stopped in the {GRACE:.0f} seconds after {signal.Signals(first).name}")
            for number in received:
                if number == END_OF_WATCH:
                    return
                if number not in SIGNALS:
                    continue
                if first:
                    end_at_once(number, f"second signal ({signal.Signals(number).name})")
                first = number
                release_observed_processes()
                if not self._signals.deferred:
                    self._reader.settimeout(self._signals.grace)

    def close(self) -> None:
        """End the thread."""
        signal.set_wakeup_fd(self._previous)
        # not by closing the writer: a child process may hold a copy of it
        self._writer.send(bytes([END_OF_WATCH]))
        self._thread.join()
        self._writer.close()
        self._reader.close()

    def abandon(self) -> None:
        """Close the copies that a forked child has of the sockets; the thread exists only in the parent."""
        signal.set_wakeup_fd(-1)
        self._writer.close()
        self._reader.close()


SIGNAL_STATE = Signals()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=SIGNAL_STATE.after_fork)


class StopRequest:
    """The signals as a training loop sees them: recorded from ``listen`` on, and obeyed where nothing is half done."""

    def __init__(self) -> None:
        self._entered = False

    @property
    def number(self) -> int:
        """The first signal, 0 if there was none."""
        return SIGNAL_STATE.number

    def listen(self) -> None:
        """Record the first signal instead of raising; the second one ends the process."""
        if threading.current_thread() is not threading.main_thread():
            return
        if not SIGNAL_STATE.active:
            SIGNAL_STATE.enter()
            self._entered = True
        SIGNAL_STATE.deferred = True
        self.reinstall()

    def reinstall(self) -> None:
        """Replace the handler of Lightning, which broadcasts from inside the handler and may hang there."""
        if SIGNAL_STATE.active and threading.current_thread() is threading.main_thread():
            SIGNAL_STATE.install()

    def close(self) -> None:
        """Stop listening, if ``listen`` began it."""
        if self._entered:
            self._entered = False
            SIGNAL_STATE.leave()

    def agree(self, number: int) -> None:
        """Take over a signal that another process of the run has received."""
        SIGNAL_STATE.number = SIGNAL_STATE.number or number
        release_observed_processes()


@contextlib.contextmanager
def stop_by_signal(grace: float | None = None) -> Iterator[Signals]:
    """Let SIGINT and SIGTERM stop what is inside: the first raises ``StoppedError``, the second ends the process.

    Inside another one it changes ``grace`` only. Outside the main thread Python handles no signals and it does nothing.

    Args:
        grace: seconds from the first signal until the process is ended; None waits for ever.
    """
    if threading.current_thread() is not threading.main_thread():
        yield Signals()
        return
    before = SIGNAL_STATE.grace if SIGNAL_STATE.active else None
    try:
        SIGNAL_STATE.enter()
        SIGNAL_STATE.grace = before if grace is None else grace
        yield SIGNAL_STATE
    finally:
        SIGNAL_STATE.grace = before
        SIGNAL_STATE.leave()


def end_at_once(number: int, reason: str) -> NoReturn:
    """End this process and all that it has started, with 128 + the number of the signal; runs no cleanup."""
    try:
        kill_descendants()
        # a pipe that nobody reads must not block the end
        if select.select([], [2], [], 0)[1]:
            os.write(2, f"fna-lightning: {reason}: ended at once; what was saved before is kept\n".encode())
    finally:
        os._exit(128 + number)
