"""float64 and float32 rounded to odd: see `arithmetic.floats.odd`.

References
----------
Boldo and Melquiond: "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd".
"""

from __future__ import annotations

from cutepy.sim.native.lanes import Lanes
from cutepy.sim.native.writer import Value


def _stepped(e: Lanes, x: Value, inexact: Value, up: Value) -> Value:
    """Move numbers whose last bit is even, and that are not exact, to the neighbour on the exact value's side."""
    w = e.w
    one = w.constant(x.bits, 1)
    is_even = w.compare("eq", w.binary("and", x, one), w.constant(x.bits, 0))
    step = w.select(up, one, w.constant(x.bits, -1))
    return w.select(w.binary("and", inexact, is_even), w.binary("add", x, step), x)


def add_odd(e: Lanes, a: Value, b: Value) -> Value:
    """Add float64 values, rounded to odd."""
    w = e.w
    zero = w.constant(64, 0)
    total = w.floats("fadd", a, b)
    back = w.floats("fsub", total, a)
    error = w.floats("fadd", w.floats("fsub", a, w.floats("fsub", total, back)), w.floats("fsub", b, back))
    # Ordered: an error of infinite totals is a NaN.
    inexact = w.compare_floats("one", error, zero)
    up = w.compare("eq", w.compare_floats("ogt", error, zero), w.compare_floats("ogt", total, zero))
    return _stepped(e, total, inexact, up)


def to_f32_odd(e: Lanes, x: Value) -> Value:
    """Return float64 as float32, rounded to odd."""
    w = e.w
    single = w.float_cast("fptrunc", x, 32)
    back = w.float_cast("fpext", single, 64)
    size = w.constant(64, (1 << 63) - 1)
    up = w.compare_floats("ogt", w.binary("and", x, size), w.binary("and", back, size))
    return _stepped(e, single, w.compare_floats("one", back, x), up)
