"""The sanitizer's memory does not grow with the length of a kernel."""

import numpy as np
import pytest

from cutepy.sim import Run
from cutepy.sim.sanitize.memory import shadow
from cutepy.sim.sanitize.memory.shadow import Shadow
from tests.sim.opcode_runner import launch

LOOP = """mov.u32 %r1, smem; mov.u32 %r2, %tid.x; shl.b32 %r3, %r2, 2; add.u32 %r4, %r1, %r3; mov.u32 %r9, 0;
AGAIN: st.shared.u32 [%r4], %r2; {between} xor.b32 %r5, %r4, 128; ld.shared.u32 %r7, [%r5]; bar.sync 0;
add.u32 %r9, %r9, 1; setp.lt.u32 %p1, %r9, {rounds}; @%p1 bra AGAIN;
"""


@pytest.mark.parametrize("between", ["bar.sync 0;", ""], ids=["right", "wrong"])
def test_what_is_kept_is_bounded_and_nothing_is_lost(monkeypatch, between):
    """With few numbers, given again and again, the same is found as with one for each touch."""
    shadows, found = [], []
    touch = Shadow.touch
    monkeypatch.setattr(Shadow, "touch", lambda self, new: (shadows.append(self), touch(self, new))[1])
    for fewest in (8, 10**6):
        monkeypatch.setattr(shadow, "_FEWEST", fewest)
        run = Run((), None, sanitize=True)
        launch(LOOP.format(between=between, rounds=60), np.zeros(1), block=64, smem_bytes=256, run=run)
        found.append([(h.kind, h.count, str(h.before), str(h.after)) for h in run.hazards])
        assert len(shadows[-1]._touches) <= 10 if fewest == 8 else len(shadows[-1]._touches) >= 100
    assert found[0] == found[1]
    assert bool(found[0]) == (between == "")
