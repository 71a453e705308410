"""Standard output whose reader has closed the pipe, as in ``fna-lightning translate ... | head -1``."""

import contextlib
import io
import os
import select
import signal
import sys

# exit code that a shell reports for a program that SIGPIPE has ended
READER_GONE = 128 + int(getattr(signal, "SIGPIPE", 13))


def show_any_text() -> None:
    """Make standard output escape text that it cannot encode, such as file names that are not UTF-8."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def reader_is_gone(error: BaseException) -> bool:
    """Whether an error means that the reader of standard output or standard error has closed the pipe.

    A broken pipe to another process, such as a data loader worker, does not count.
    """
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, BrokenPipeError):
        # rich raises SystemExit when it cannot print
        cause = cause.__context__ if isinstance(cause, SystemExit) else None
    if cause is None:
        return False
    return isinstance(error, SystemExit) or any(_is_broken(stream) for stream in (sys.stdout, sys.stderr))


def end_quietly() -> int:
    """Discard all further output and return the exit code of a program whose output is not read."""
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            if stream is sys.stdout or _is_broken(stream):
                os.dup2(null, stream.fileno())
    os.close(null)
    return READER_GONE


def print_error(text: str) -> None:
    """Print a line to standard error, unless its reader has closed the pipe."""
    try:
        print(text, file=sys.stderr, flush=True)  # noqa: T201
    except BrokenPipeError:
        end_quietly()


def _is_broken(stream: object) -> bool:
    """Whether a stream is a pipe whose other end is closed."""
    try:
        poll = select.poll()
        poll.register(stream.fileno(), select.POLLOUT)  # type: ignore[attr-defined]
        return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))
    except (OSError, ValueError, AttributeError):
        # the stream has no file, is closed already, or the system has no poll
        return False
