"""How many examples hypothesis tries: few in CI, as many as FNA_EXAMPLES says on demand."""

import os

EXAMPLES = int(os.environ.get("FNA_EXAMPLES", "0"))


def examples(few: int) -> int:
    """Return how many examples a test tries that can afford only ``few`` in CI."""
    return EXAMPLES or few
