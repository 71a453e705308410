"""A job for worker processes, which import it by its name."""

import os
import signal


def job(action: str) -> str | None:
    """Raise an error, kill or exit the process, or return its id ("where")."""
    if action == "raise":
        raise ValueError("a mistake")
    if action == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if action == "leave":
        os._exit(3)
    return str(os.getpid()) if action == "where" else None
