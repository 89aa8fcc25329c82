"""How finely memory is watched: the smallest access that a kernel may make to shared memory."""

from __future__ import annotations

from functools import lru_cache

from cutepy.layouts.sm90.arch import UNIT_BYTES
from cutepy.sim.ptx.model import Instruction, type_bits
from cutepy.sim.translate import linked

_ACCESSES = ("ld", "st", "atom", "red")
_ELSEWHERE = ("global", "local", "param", "const")


@lru_cache(maxsize=64)
def granule_bytes(ptx: str, kernel: str) -> int:
    """Return the size of the smallest access of a kernel to shared memory, 16 at most."""
    return min((_bytes(i) for i in linked(ptx, kernel).function.instructions if _may_be_shared(i)), default=UNIT_BYTES)


def _may_be_shared(i: Instruction) -> bool:
    if i.parts[:2] == ("cp", "async") and i.parts[2] in ("ca", "cg"):
        return True
    return i.parts[0] in _ACCESSES and not any(p in _ELSEWHERE for p in i.parts)


def _bytes(i: Instruction) -> int:
    if i.parts[0] == "cp":
        return 4
    vector = next((int(p[1:]) for p in i.parts if p in ("v2", "v4", "v8")), 1)
    return min(UNIT_BYTES, max(1, type_bits(i.parts[-1]) * vector // 8))
