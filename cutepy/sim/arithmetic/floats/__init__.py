"""Floating point arithmetic with PTX's rounding, flushing, saturation and NaN rules; approximations.

A result that numpy cannot round as asked is first rounded to odd in float64 (`odd`), then as asked (`rounding`).
float64 itself is rounded in other directions lane by lane, with exact fractions.

Approximate instructions are computed in float64 and rounded once, so their last bits can differ from the hardware's,
within the error that the PTX ISA states. What the ISA leaves open is as measured on an H200: NaN results of float32 and
16-bit types are canonical, those of float64 are the last operand that is a NaN, and a result is flushed (.ftz) if it
is subnormal after rounding with an exponent without bounds.

References
----------
PTX ISA, "Floating Point Instructions", "Half Precision Floating Point Instructions", "Rounding Modifiers".
"""

from cutepy.sim.arithmetic.floats.approximations import (
    cosine as cosine,
    div_approx as div_approx,
    ex2 as ex2,
    high_word as high_word,
    lg2 as lg2,
    rcp as rcp,
    rsqrt as rsqrt,
    sine as sine,
    tanh as tanh,
    upper_part as upper_part,
)
from cutepy.sim.arithmetic.floats.integral import (
    float_to_int as float_to_int,
    from_int as from_int,
    round_to_integral as round_to_integral,
)
from cutepy.sim.arithmetic.floats.rounding import (
    directed as directed,
    fma as fma,
    narrow_operation as narrow_operation,
    round_to as round_to,
)
from cutepy.sim.arithmetic.floats.special_values import (
    EXTREMES as EXTREMES,
    canonical as canonical,
    flush as flush,
    flush_half as flush_half,
    flush_rounded as flush_rounded,
    flush_tiny as flush_tiny,
    last_nan as last_nan,
    maximum as maximum,
    maximum_nan as maximum_nan,
    minimum as minimum,
    minimum_nan as minimum_nan,
    relu as relu,
    saturate as saturate,
    xor_sign as xor_sign,
)
