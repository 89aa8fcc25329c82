"""A module that processes which compile fail to import, if TROUBLED says how."""

import multiprocessing
import os
import time
from pathlib import Path

import cutlass
import cutlass.cute as cute

from tests.host import kernels

TROUBLE = os.environ.get("TROUBLED") if multiprocessing.parent_process() else None
if TROUBLE == "dies":
    os._exit(7)
elif TROUBLE:
    with Path(TROUBLE).open("a") as pids:
        pids.write(f"{os.getpid()}\n")
    time.sleep(600)


@cute.jit
def troubled(x: cute.Tensor, times: cutlass.Constexpr = 1):
    """Copy a matrix to itself."""
    kernels._copy(x, x).launch(grid=(times, 1, 1), block=(32, 1, 1))
