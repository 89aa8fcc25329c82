"""Opcodes whose modifiers assemblers take in several orders, in the order of the ISA's syntax.

CUDA's headers write ``max.s32.relu``, and CUTLASS ``ldmatrix.sync.aligned.x4.m8n8`` in older versions. Loads and stores
of 128 bits are those of two words: registers of 128 bits are pairs.
"""

from __future__ import annotations

import re
from functools import lru_cache

_RELU_LAST = re.compile(r"(min|max)\.(\w+)\.relu")
_WIDE = re.compile(r"((?:ld|ldu|st)(?:\..*)?)\.b128")
_COUNT_FIRST = re.compile(r"((?:ld|st)matrix\.sync\.aligned)\.(x[124])((?:\.trans)?)\.(m8n8)(.*)")


@lru_cache(maxsize=1024)
def usual(opcode: str) -> str:
    """Return an opcode in the usual order.

    Examples
    --------
    >>> usual("max.s32.relu"), usual("ldmatrix.sync.aligned.x4.trans.m8n8.shared.b16")
    ('max.relu.s32', 'ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16')
    """
    if opcode[0] == "m" and (found := _RELU_LAST.fullmatch(opcode)):
        return f"{found[1]}.relu.{found[2]}"
    if "matrix" in opcode and (found := _COUNT_FIRST.fullmatch(opcode)):
        return f"{found[1]}.{found[4]}.{found[2]}{found[3]}{found[5]}"
    if opcode.endswith(".b128") and (found := _WIDE.fullmatch(opcode)):
        return f"{found[1]}.v2.b64"
    return opcode
