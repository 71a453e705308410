"""Number of hypothesis examples: few in CI, FNA_EXAMPLES if it is set."""

import os

EXAMPLES = int(os.environ.get("FNA_EXAMPLES", "0"))


def examples(few: int) -> int:
    """Return FNA_EXAMPLES if it is set, otherwise ``few``."""
    return EXAMPLES or few
