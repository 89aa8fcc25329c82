"""Write the scripts that confirm hazards on a GPU: python -m tests.sim.confirm FOLDER [KIND...]."""

import sys
from pathlib import Path

from tests.sim.confirm.writing import write

write(Path(sys.argv[1]), sys.argv[2:])
