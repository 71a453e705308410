"""One process of a run with several ranks: runs a command, records its examples, may send itself signals.

python tests/torture/rank.py PLAN fit ...

PLAN is JSON: {"record": FOLDER, "point": ..., "signals": ..., "call": 1, "mark": FILE, "rank": 0}
"""

import starting  # noqa: F401 - before the imports that take a second

# isort: split

import json
import sys
from pathlib import Path

from points import arm, record_examples

from fna_lightning.cli import main
from fna_lightning.training.run_folder import global_rank

if __name__ == "__main__":
    plan = json.loads(sys.argv[1])
    record_examples(Path(plan["record"]))
    if "point" in plan and global_rank() == plan["rank"]:
        arm(plan["point"], plan["signals"], plan["call"], Path(plan["mark"]))
    sys.exit(main(sys.argv[2:]))
