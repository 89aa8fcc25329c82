"""Cost of sanitized kernels of plain threads: what their arithmetic and the patterns of their accesses take."""

import numpy as np
import pytest

from cutepy.sim import Run
from cutepy.sim.arithmetic import floats
from cutepy.sim.machine import address_patterns
from cutepy.sim.native import ledger
from tests.sim.opcode_runner import launch

ROUNDS, LANES = 32, 128 * 64
PRODUCT = f"""mov.u32 %r1, %ctaid.x; mov.u32 %r2, %tid.x; ld.param.u64 %rd1, [p0]; ld.param.u64 %rd2, [p1];
ld.param.u64 %rd3, [p2]; mad.lo.u32 %r3, %r1, 128, %r2; mul.wide.u32 %rd4, %r3, 4; add.u64 %rd3, %rd3, %rd4;
mul.wide.u32 %rd5, %r3, {8 * ROUNDS}; add.u64 %rd1, %rd1, %rd5; mul.wide.u32 %rd6, %r2, 4; add.u64 %rd2, %rd2, %rd6;
mov.u32 %r20, 0; mov.f32 %f0, 0f00000000; shl.b32 %r5, %r2, 2; mov.u32 %r6, smem; add.u32 %r5, %r5, %r6;
LOOP: ld.global.f32 %f1, [%rd1]; ld.global.f32 %f2, [%rd2]; fma.rn.f32 %f0, %f1, %f2, %f0;
st.shared.f32 [%r5], %f1; bar.sync 0; ld.shared.f32 %f3, [%r6];
ld.global.f32 %f1, [%rd1+4]; ld.global.f32 %f2, [%rd2+512]; fma.rn.f32 %f0, %f1, %f2, %f0; bar.sync 0;
add.u64 %rd1, %rd1, 8; add.u64 %rd2, %rd2, 1024; add.u32 %r20, %r20, 1;
setp.lt.u32 %p3, %r20, {ROUNDS}; @%p3 bra LOOP;
st.global.f32 [%rd3], %f0;
"""


def operands():
    """Return A by rows, B by columns, and what comes of them."""
    rng = np.random.default_rng(0)
    a, b = rng.integers(-8, 8, (LANES, 2 * ROUNDS)), rng.integers(-8, 8, (2 * ROUNDS, 128))
    right = (a.reshape(64, 128, -1) * b.T).sum(axis=2).reshape(-1).astype(np.float32)
    return a.astype(np.float32), b.astype(np.float32), right


def sanitized():
    """Run the product under the sanitizer, and compare its values."""
    a, b, right = operands()
    found, run = np.zeros(LANES, np.float32), Run((), None, sanitize=True)
    launch(PRODUCT, a, b, found, grid=64, block=128, smem_bytes=512, run=run)
    assert (found == right).all()
    assert list(run.hazards) == []
    assert [certificate.is_certified for certificate in run.certificates] == [True]


def test_each_pattern_is_found_once(monkeypatch):
    """A loop's accesses have one pattern each, and the granules of each pattern are sorted once."""
    made, sorted_ = [], []
    original, cells = address_patterns.AddressPattern.__init__, address_patterns._cells
    monkeypatch.setattr(
        address_patterns.AddressPattern, "__init__", lambda self, offsets: (made.append(1), original(self, offsets))[1]
    )
    monkeypatch.setattr(address_patterns, "_cells", lambda *given: (sorted_.append(1), cells(*given))[1])
    sanitized()
    assert len(made) <= 4, len(made)  # of A, B and the result, of which two are kept for several rounds
    assert len(sorted_) <= len(made), len(sorted_)


@pytest.mark.dsl
def test_arithmetic_between_accesses_is_machine_code(monkeypatch):
    pytest.importorskip("cutlass")
    import cutepy.frontends.dsl  # noqa: F401  brings the compiler

    calls, original = [], floats.fma
    monkeypatch.setattr(floats, "fma", lambda *given: (calls.append(1), original(*given))[1])
    monkeypatch.setattr(ledger, "WORTH", 0.0)
    monkeypatch.setenv("CUTEPY_CACHE", "off")
    sanitized()
    assert len(calls) <= 2, len(calls)
