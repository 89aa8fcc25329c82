"""Sums, products, quotients and roots, rounded once: next to the exact value, on the side that is asked for."""

from fractions import Fraction
from operator import add, mul, sub, truediv

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st

from cutepy.sim.arithmetic.floats import directed, from_int, round_fraction

MODES = ["rn", "rz", "rm", "rp"]
EXACT = {"add": add, "sub": sub, "mul": mul, "div": truediv, "rcp": lambda a: 1 / a, "fma": lambda a, b, c: a * b + c}
KINDS = {np.float32: (24, st.integers(-90, 60)), np.float64: (53, st.sampled_from((-560, -540, -60, -1, 0, 3, 400)))}


def rounded(kind, mode, is_at_most, near, negative=False):
    """Return the neighbour of an exact value that a mode asks for; `is_at_most` compares floats with the value."""
    infinity = kind(np.inf)
    low = kind(near)
    while not is_at_most(low):
        low = np.nextafter(low, -infinity)
    while is_at_most(high := np.nextafter(low, infinity)):
        low = high
    if mode == "rn":
        return None
    return low if mode == "rm" or (mode == "rz" and not negative) else high


def check(found, kind, mode, exact):
    """Require a value's rounding; of a value that a float is, that float."""
    found = kind(found)
    if Fraction(float(found)) == exact:
        return
    expected = rounded(kind, mode, lambda x: Fraction(float(x)) <= exact, found, exact < 0)
    if expected is None:
        error = abs(Fraction(float(found)) - exact)
        for neighbour in (np.nextafter(found, kind(-np.inf)), np.nextafter(found, kind(np.inf))):
            other = abs(Fraction(float(neighbour)) - exact)
            assert error < other or (error == other and not int(found.view(f"u{found.itemsize}")) & 1)
    else:
        assert found == expected
    assert bool(np.signbit(found)) == (exact < 0)


@given(st.data(), st.sampled_from(sorted(EXACT)), st.sampled_from(MODES), st.sampled_from(list(KINDS)))
def test_results_are_next_to_the_exact_ones(data, operation, mode, kind):
    digits, exponents = KINDS[kind]
    count = EXACT[operation].__code__.co_argcount if operation in ("rcp", "fma") else 2
    number = st.builds(lambda n, e: kind(np.ldexp(float(n), e)), st.integers(-(2**digits), 2**digits), exponents)
    operands = [data.draw(number) for _ in range(count)]
    assume(operation not in ("div", "rcp") or operands[-1] != 0)
    assume(kind is np.float32 or operation in ("mul", "add", "sub") or all(abs(float(x)) > 1e-150 for x in operands))
    exact = EXACT[operation](*(Fraction(float(x)) for x in operands))
    assume(abs(exact) < Fraction(float(np.finfo(kind).max)) / 2)
    (found,) = directed(operation, mode, *(np.array([x]) for x in operands))
    if exact:
        check(found, kind, mode, exact)
    else:
        assert found == 0
        signs = [bool(np.signbit(x)) for x in operands]
        if operation in ("mul", "div"):
            assert bool(np.signbit(found)) == (signs[0] != signs[1])
        elif operation in ("add", "sub"):
            second = signs[1] != (operation == "sub")
            assert bool(np.signbit(found)) == (signs[0] if signs[0] == second else mode == "rm")


@given(st.integers(1, 2**53), st.sampled_from((-1074, -61, 0, 1, 900)), st.sampled_from(MODES))
def test_roots_are_next_to_the_exact_ones(number, exponent, mode):
    of = float(np.ldexp(float(number), exponent))
    assume(of > 0)
    (found,) = directed("sqrt", mode, np.array([of]))
    square = Fraction(of)
    if Fraction(float(found)) ** 2 != square and mode != "rn":
        assert found == rounded(np.float64, mode, lambda x: x <= 0 or Fraction(float(x)) ** 2 <= square, found)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("mode", MODES)
def test_fractions_below_all_floats_and_beyond(sign, mode):
    tiny, huge = Fraction(sign, 2**1080), Fraction(sign * 2**1030)
    away = mode == ("rp" if sign > 0 else "rm")
    assert round_fraction(tiny, mode) == (sign * 5e-324 if away else 0)
    assert np.signbit(round_fraction(tiny, mode)) == (sign < 0)
    bounded = mode == "rz" or mode == ("rm" if sign > 0 else "rp")
    assert round_fraction(huge, mode) == sign * (np.finfo(np.float64).max if bounded else np.inf)


@given(
    st.sampled_from((np.int32, np.uint32, np.int64, np.uint64)),
    st.sampled_from((np.float32, np.float64)),
    st.sampled_from(MODES),
    st.data(),
)
def test_integers_are_rounded_once(of, kind, mode, data):
    info = np.iinfo(of)
    near = st.sampled_from([1 << n for n in range(info.bits)]).flatmap(lambda n: st.integers(n - 3, n + 3))
    value = data.draw(st.one_of(st.integers(info.min, info.max), near))
    assume(info.min <= value <= info.max)
    found = from_int(np.array([value], of), np.dtype(kind).str[1:], mode)
    assert np.dtype(found.dtype).itemsize in (4, 8)
    if value:
        check(kind(found[0]), kind, mode, Fraction(value))
    else:
        assert found[0] == 0
