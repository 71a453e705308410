"""Stopping a run from outside: a signal asks, and the run answers where nothing is half done."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StoppedError(BaseException):
    """A run that a signal ended; no ``Exception``, so that nobody takes it for a mistake on its way out.

    Args:
        number: the signal.
        message: what to tell the user.
    """

    def __init__(self, number: int, message: str = "") -> None:
        super().__init__(message or f"stopped by {signal.Signals(number).name}")
        self.number = number


class StopRequest:
    """Remembers the first signal; the second one ends the run at once."""

    # whether any run of this process has been asked
    heard = False

    def __init__(self) -> None:
        self.number = 0

    def listen(self) -> None:
        """Take the place of whoever handled these signals."""
        for number in SIGNALS if threading.current_thread() is threading.main_thread() else ():
            # a shell starts its background jobs deaf to Ctrl-C, and deaf they stay
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._hear)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self.number:
            raise StoppedError(number)
        self.number = number
        StopRequest.heard = True


@contextlib.contextmanager
def stop_by_signal() -> Iterator[None]:
    """Let SIGTERM end what is inside as Ctrl-C does, through Python; afterwards signals mean what they did before."""

    def end(number: int, frame: FrameType | None) -> None:
        raise StoppedError(number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
