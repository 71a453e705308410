"""Stopping a process by signals: the first SIGINT or SIGTERM requests a stop, the second one ends it at once."""

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

# seconds for cleanup after a signal that arrives when there is nothing to save
GRACE = 10.0

# byte that ends the watcher thread; no signal has this number
END_OF_WATCH = 0


class StoppedError(BaseException):
    """Raised when a signal stops a process.

    It is a ``BaseException`` so that ``except Exception`` does not catch it.

    Args:
        number: number of the signal.
        message: message for the user.
    """

    def __init__(self, number: int, message: str = "") -> None:
        super().__init__(message or f"stopped by {signal.Signals(number).name}")
        self.number = number


class Signals:
    """Signals that this process has received. There is one instance per process.

    Attributes:
        number: number of the first signal since the outermost ``stop_by_signal`` began; 0 if there was none.
        deferred: whether the first signal is only recorded; otherwise it raises ``StoppedError`` in the main thread.
        grace: seconds from a first signal that is not deferred to the end of the process; None means no limit.
        heard: whether this process has ever received a signal.
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
        """Handle signals until the matching ``leave``."""
        self._depth += 1
        if self._depth == 1:
            self.number, self.deferred, self.grace = 0, False, None
            self._before = {number: signal.getsignal(number) for number in SIGNALS}
            self._watcher = _Watcher(self)
            self.install()

    def leave(self) -> None:
        """Restore the previous signal handlers."""
        self._depth -= 1
        if self._depth == 0:
            for number, handler in self._before.items():
                if handler is not None:
                    signal.signal(number, handler)  # type: ignore[arg-type]
            if self._watcher is not None:
                self._watcher.close()
                self._watcher = None

    def install(self) -> None:
        """Install the handler, replacing any handler installed in the meantime."""
        for number in SIGNALS:
            # Shells start background jobs with SIGINT ignored; keep that.
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.heard = True
        if self.number:
            # The watcher thread ends the process.
            return
        self.number = number
        if not self.deferred:
            raise StoppedError(number)

    @property
    def active(self) -> bool:
        """Whether this object handles the signals."""
        return self._depth > 0

    def exit_code(self, code: int) -> int:
        """Return ``code``, or 128 + the number of the signal that was received."""
        return 128 + self.number if self.number else code

    def after_fork(self) -> None:
        """Reset the copy in a forked child, which handles its own signals and has no watcher."""
        if self._watcher is not None:
            self._watcher.abandon()
            self._watcher = None
        self._depth = 0


class _Watcher:
    """A thread that sees every signal immediately, even while the main thread is blocked in C code.

    Python runs signal handlers between two bytecodes of the main thread, and so never while that thread waits in a
    collective operation for a process that does not respond. The C part of the handler, however, writes the number of
    the signal to the wake-up file descriptor immediately.
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
        # Closing the writer would not end the thread: a child process may hold a copy of it.
        self._writer.send(bytes([END_OF_WATCH]))
        self._thread.join()
        self._writer.close()
        self._reader.close()

    def abandon(self) -> None:
        """Close the sockets in a forked child; the thread exists only in the parent."""
        signal.set_wakeup_fd(-1)
        self._writer.close()
        self._reader.close()


SIGNAL_STATE = Signals()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=SIGNAL_STATE.after_fork)


class StopRequest:
    """A stop request for a training loop, which reads ``number`` where it can stop with a complete checkpoint."""

    def __init__(self) -> None:
        self._entered = False

    @property
    def number(self) -> int:
        """Number of the first signal; 0 if there was none."""
        return SIGNAL_STATE.number

    def listen(self) -> None:
        """Record the first signal instead of raising an error; the second one ends the process."""
        if threading.current_thread() is not threading.main_thread():
            return
        if not SIGNAL_STATE.active:
            SIGNAL_STATE.enter()
            self._entered = True
        SIGNAL_STATE.deferred = True
        self.reinstall()

    def reinstall(self) -> None:
        """Replace Lightning's handler, which broadcasts inside the handler and may hang there."""
        if SIGNAL_STATE.active and threading.current_thread() is threading.main_thread():
            SIGNAL_STATE.install()

    def close(self) -> None:
        """Restore the previous handlers if ``listen`` replaced them."""
        if self._entered:
            self._entered = False
            SIGNAL_STATE.leave()

    def agree(self, number: int) -> None:
        """Act as if this process had received the signal of another process of the run."""
        SIGNAL_STATE.number = SIGNAL_STATE.number or number
        release_observed_processes()


@contextlib.contextmanager
def stop_by_signal(grace: float | None = None) -> Iterator[Signals]:
    """Context manager in which the first SIGINT or SIGTERM raises ``StoppedError`` and the second ends the process.

    A nested call only changes ``grace``. Outside the main thread, where Python handles no signals, it does nothing.

    Args:
        grace: seconds from the first signal to the end of the process; None means no limit.
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
    """End this process and its descendants without cleanup, with exit code 128 + the number of the signal."""
    try:
        kill_descendants()
        # A full pipe without a reader must not block the exit.
        if select.select([], [2], [], 0)[1]:
            os.write(2, f"fna-lightning: {reason}: ended at once; what was saved before is kept\n".encode())
    finally:
        os._exit(128 + number)
