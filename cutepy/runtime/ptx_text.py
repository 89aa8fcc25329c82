"""Facts of PTX that launches and reports need without the simulator: its version, and the tensor memory of a kernel.

The facts are found by regular expressions in text that a compiler has written, because a launch has no time to parse
PTX. Code that may import the simulator uses `cutepy.sim.ptx.Module` instead.
"""

from __future__ import annotations

import re

_VERSION = re.compile(r"\.version (\d+)\.(\d+)")
_ALLOCATIONS = re.compile(r"tcgen05\.alloc\.\S+\s+\[[^]]+\],\s*([\w%]+)\s*;")
_ENTRY = re.compile(r"\.entry\s+([\w$]+)")


def version_of(ptx: str) -> tuple[int, int]:
    r"""Return the PTX ISA version of kernels: 8 is CUDA 12's, 9 is CUDA 13's; (0, 0) if they have none.

    Examples
    --------
    >>> version_of(".version 8.7\n.target sm_90a")
    (8, 7)
    """
    found = _VERSION.search(ptx)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def tmem_columns(ptx: str, kernel: str) -> int | None:
    """Return the columns of tensor memory that a CTA of a kernel allocates: 0 without allocation, None if unknown.

    Examples
    --------
    >>> tmem_columns(".entry k() { tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r1], 128; }", "k")
    128
    """
    if "tcgen05.alloc" not in ptx:
        return 0
    parts = _ENTRY.split(ptx)
    body = dict(zip(parts[1::2], parts[2::2], strict=True)).get(kernel, "")
    found = _ALLOCATIONS.findall(body)
    if len(found) != 1:
        return None if found else 0
    (count,) = found
    if not count.isdecimal():
        written = re.findall(rf"\s(\S+)\s+{re.escape(count)},\s*(\w+)\s*;", body)
        if len(written) != 1 or not written[0][0].startswith("mov.") or not written[0][1].isdecimal():
            return None
        count = written[0][1]
    return int(count)
