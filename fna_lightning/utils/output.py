"""Standard output that somebody stopped reading, as in ``fna-lightning translate ... | head -1``."""

import contextlib
import io
import os
import select
import signal
import sys

# what a shell reports of a program that ended because nobody reads its output
READER_GONE = 128 + int(getattr(signal, "SIGPIPE", 13))


def show_any_text() -> None:
    """Let standard output show texts that are no Unicode, such as file names in another encoding, with escapes."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def reader_is_gone(error: BaseException) -> bool:
    """Whether an error means that nobody reads standard output or standard error any more.

    A broken pipe to another process, such as one that loads data, is something else.
    """
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, BrokenPipeError):
        # rich ends the program when it cannot print
        cause = cause.__context__ if isinstance(cause, SystemExit) else None
    if cause is None:
        return False
    return isinstance(error, SystemExit) or any(_is_broken(stream) for stream in (sys.stdout, sys.stderr))


def end_quietly() -> int:
    """Return the exit code of a program without a reader; what is still to be written goes nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            if stream is sys.stdout or _is_broken(stream):
                os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
    return READER_GONE


def complain(text: str) -> None:
    """Print a line to standard error, if anybody reads it."""
    try:
        print(text, file=sys.stderr, flush=True)  # noqa: T201
    except BrokenPipeError:
        end_quietly()


def _is_broken(stream: object) -> bool:
    """Whether a stream is a pipe whose other end is closed."""
    try:
        watched = select.poll()
        watched.register(stream.fileno(), select.POLLOUT)  # type: ignore[attr-defined]
        return any(events & (select.POLLERR | select.POLLHUP) for _, events in watched.poll(0))
    except (OSError, ValueError, AttributeError):
        # no file behind it, closed already, or a system without poll
        return False
