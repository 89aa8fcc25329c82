"""Values that decide branches ahead: plain integer arithmetic gives what the simulator gives, or is unknown."""

import numpy as np
import pytest

from cutepy.sim.machine.reachable_code import _evaluate
from cutepy.sim.ptx.model import Instruction

ALL = (1 << 64) - 1
CASES = [
    ("setp.lt.s32", (0xFFFFFFFF, 1), 1), ("setp.lt.u32", (0xFFFFFFFF, 1), 0), ("setp.ge.s64", (ALL, 0), 0),
    ("add.s32", (0xFFFFFFFF, 2), 1), ("sub.u32", (1, 2), 0xFFFFFFFF), ("mul.lo.s32", (0xFFFFFFFF, 3), 0xFFFFFFFD),
    ("shr.s32", (0x80000000, 4), 0xF8000000), ("shr.u32", (0x80000000, 4), 0x08000000), ("shl.b32", (3, 31), 1 << 31),
    ("rem.s32", (7, 3), 1), ("rem.s32", (0xFFFFFFF9, 3), None), ("div.u32", (7, 0), None), ("selp.b32", (5, 6, 0), 6),
    ("min.s32", (0xFFFFFFFF, 0), 0xFFFFFFFF), ("min.u32", (0xFFFFFFFF, 0), 0), ("mad.lo.s32", (2, 3, 4), 10),
    ("cvt.u16.u32", (0x12345,), 0x2345), ("cvt.s32.s16", (0xFFFF,), 0xFFFFFFFF), ("not.pred", (1,), 0),
    ("setp.lt.f32", (0, 1), None), ("mul.hi.u32", (2, 3), None), ("add.sat.s32", (1, 2), None),
    ("mapa.shared::cluster.u32", (0x400, 1), 0x2000400), ("shl.b32", (1, 32), None),
]  # fmt: skip


@pytest.mark.parametrize(("opcode", "operands", "expected"), CASES)
def test_arithmetic(opcode, operands, expected):
    found = _evaluate(Instruction(0, opcode, ()), [np.full((1, 1), x, np.uint64) for x in operands])
    assert (None if found is None else int(found[0, 0]) & 0xFFFFFFFF) == expected
