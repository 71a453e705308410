"""A job for other processes, which find it by its name."""

import os
import signal


def job(kind: str) -> str | None:
    """Do one of the things a job may do."""
    if kind == "raise":
        raise ValueError("a mistake")
    if kind == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "leave":
        os._exit(3)
    return str(os.getpid()) if kind == "where" else None
