"""One process of a run with several ranks: records its examples, sends itself a signal if told, and runs a command.

python tests/torture/rank.py '{"record": FOLDER, "point": ..., "kind": ..., "call": 1, "mark": FILE, "rank": 0}' fit ...
"""

import starting  # noqa: F401 - before what takes a second to import

# isort: split

import json
import sys
from pathlib import Path

from points import aim, record_examples

from fna_lightning.cli import main
from fna_lightning.training.run_folder import global_rank

if __name__ == "__main__":
    plan = json.loads(sys.argv[1])
    record_examples(Path(plan["record"]))
    if "point" in plan and global_rank() == plan["rank"]:
        aim(plan["point"], plan["kind"], plan["call"], Path(plan["mark"]))
    sys.exit(main(sys.argv[2:]))
