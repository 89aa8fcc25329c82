"""Cost of sanitized kernels of plain threads: what their arithmetic and the patterns of their accesses take."""

from collections import Counter

import numpy as np
import pytest

from cutepy.sim import Run
from cutepy.sim.arithmetic import floats
from cutepy.sim.machine import address_patterns
from cutepy.sim.native import ledger
from cutepy.sim.sanitize.memory.shadow import Shadow
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
    assert len(calls) < ROUNDS // 4, len(calls)  # each round has two without machine code


TILES, TILE = 8, 16
TILED = f"""mov.u32 %r1, %ctaid.x; mov.u32 %r2, %tid.x; shr.u32 %r3, %r2, 4; and.b32 %r4, %r2, 15;
ld.param.u64 %rd1, [p0]; ld.param.u64 %rd2, [p1]; ld.param.u64 %rd3, [p2];
mad.lo.u32 %r5, %r1, {TILE}, %r3; mad.lo.u32 %r6, %r5, {TILE * TILES}, %r4; mul.wide.u32 %rd4, %r6, 4;
add.u64 %rd1, %rd1, %rd4; mul.wide.u32 %rd5, %r2, 4; add.u64 %rd2, %rd2, %rd5;
mad.lo.u32 %r7, %r5, {TILE}, %r4; mul.wide.u32 %rd6, %r7, 4; add.u64 %rd3, %rd3, %rd6;
mov.u32 %r8, smem; shl.b32 %r9, %r2, 2; add.u32 %r9, %r9, %r8; shl.b32 %r10, %r3, 6; add.u32 %r10, %r10, %r8;
shl.b32 %r11, %r4, 2; add.u32 %r11, %r11, %r8; mov.f32 %f0, 0f00000000; mov.u32 %r20, 0;
LOOP: ld.global.f32 %f1, [%rd1]; ld.global.f32 %f2, [%rd2]; st.shared.f32 [%r9], %f1; st.shared.f32 [%r9+1024], %f2;
bar.sync 0;
{
    " ".join(
        f"ld.shared.f32 %f3, [%r10+{4 * k}]; ld.shared.f32 %f4, [%r11+{1024 + 64 * k}];fma.rn.f32 %f0, %f3, %f4, %f0;"
        for k in range(TILE)
    )
}
bar.sync 0; add.u64 %rd1, %rd1, {4 * TILE}; add.u64 %rd2, %rd2, {4 * TILE * TILE}; add.u32 %r20, %r20, 1;
setp.lt.u32 %p1, %r20, {TILES}; @%p1 bra LOOP; st.global.f32 [%rd3], %f0;
"""
"""Products of tiles in shared memory: each CTA has 16 rows of A, and all of B."""


@pytest.mark.dsl
def test_loads_of_a_tile_are_one_step_in_shadow_memory(monkeypatch):
    pytest.importorskip("cutlass")
    import cutepy.frontends.dsl  # noqa: F401  brings the compiler

    calls: Counter[str] = Counter()

    def count(owner, name):
        original = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *given: (calls.update([name]), original(*given))[1])

    for name in ("_touch", "loads", "_unknown"):
        count(Shadow, name)
    shadows, made = [], Shadow.__init__
    monkeypatch.setattr(Shadow, "__init__", lambda self, *given: (shadows.append(self), made(self, *given))[1])
    monkeypatch.setattr(ledger, "WORTH", 0.0)
    monkeypatch.setenv("CUTEPY_CACHE", "off")
    rng = np.random.default_rng(0)
    ctas = 32
    a, b = rng.integers(-8, 8, (ctas * TILE, TILES * TILE)), rng.integers(-8, 8, (TILES * TILE, TILE))
    found, run = np.zeros((ctas * TILE, TILE), np.float32), Run((), None, sanitize=True)
    launch(TILED, a.astype(np.float32), b.astype(np.float32), found, grid=ctas, block=256, smem_bytes=2048, run=run)
    assert (found == a @ b).all()
    assert list(run.hazards) == []
    assert [certificate.is_certified for certificate in run.certificates] == [True]
    (shadow,) = shadows
    assert len(shadow._written) == len(shadow._read) == 1  # all CTAs hold the same
    assert calls["loads"] <= TILES + 2, calls
    assert calls["_touch"] <= 2 * TILES, calls  # the stores alone
    assert calls["_unknown"] <= 6 * TILES, calls  # of the 32 loads of a round, which lanes know is asked once
