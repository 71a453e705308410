"""Errors that the user can correct, and errors as one line of text."""


class UsageError(Exception):
    """An error in the command line, a configuration or a file; its message says how to correct it."""


def one_line(error: BaseException) -> str:
    """Return the message of an error on one line; the name of its class if it has no message."""
    return " ".join(str(error).split()) or type(error).__name__


def first_line(error: BaseException) -> str:
    """Return the first line of the message of an error."""
    return str(error).strip().partition("\n")[0]
