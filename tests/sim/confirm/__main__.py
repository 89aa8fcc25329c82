"""Hazards on a GPU: ``python -m tests.sim.confirm FOLDER [KIND...]`` writes scripts that confirm them.

There ``python FOLDER/run_all.py`` writes results.json, of which ``python -m tests.sim.confirm results.json`` prints the
tables of the documentation.
"""

import json
import sys
from pathlib import Path

from tests.sim.confirm.tables import kinds_table, scopes_table
from tests.sim.confirm.writing import write

path = Path(sys.argv[1])
if path.suffix == ".json":
    results = json.loads(path.read_text())
    print(results["gpu"], kinds_table(results), scopes_table(results), sep="\n\n")
else:
    write(path, sys.argv[2:])
