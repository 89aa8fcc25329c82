"""Functions with unusual parameters: classes, tuples, defaults, names that have another meaning; and methods."""

import enum
from typing import Type  # noqa: UP035  as the DSL's own examples write it

import cutlass
import cutlass.cute as cute


class Mode(enum.Enum):
    FOUR = 4.0


class Number(enum.IntEnum):
    FIVE = 5


@cute.kernel
def _fill(a: cute.Tensor, scale: cutlass.Float32, value: cutlass.Constexpr):
    a[cute.arch.thread_idx()[0]] = scale * cutlass.Float32(value)


@cute.jit
def width(a: cute.Tensor, dtype: Type[cutlass.Numeric], scale: cutlass.Float32):  # noqa: UP006
    """Fill a vector of 32 with the bits of a type."""
    _fill(a, scale, dtype.width).launch(grid=(1, 1, 1), block=(32, 1, 1))


@cute.jit
def untyped(a: cute.Tensor, value, scale: cutlass.Float32):
    """Fill a vector of 32 with what a class makes of 3.5."""
    _fill(a, scale, float(value(3.5))).launch(grid=(1, 1, 1), block=(32, 1, 1))


@cute.jit
def typed(a: cute.Tensor, scale: cutlass.Float32, dtype: type = float):
    """Fill a vector of 32; the DSL takes no class for `dtype`."""
    _fill(a, scale, 1.0).launch(grid=(1, 1, 1), block=(32, 1, 1))


@cute.kernel
def _sum(a: cute.Tensor, numbers: tuple):
    a[cute.arch.thread_idx()[0]] = cutlass.Float32(numbers[0]) + cutlass.Float32(numbers[1][0])


@cute.jit
def total(a: cute.Tensor, numbers: tuple):
    """Fill a vector of 32 with the sum of two numbers, x and y of (x, (y,))."""
    _sum(a, numbers).launch(grid=(1, 1, 1), block=(32, 1, 1))


@cute.jit
def settings(a: cute.Tensor, options: cutlass.Constexpr, cache: cutlass.Constexpr = 2.0):
    """Fill a vector of 32; the parameters are called like those of `cutepy.compile`."""
    _fill(a, cutlass.Float32(options), cache).launch(grid=(1, 1, 1), block=(32, 1, 1))


@cute.jit
def settings_by_name(a: cute.Tensor, *, cache: cutlass.Constexpr):
    """Fill a vector of 32."""
    _fill(a, cutlass.Float32(1), cache).launch(grid=(1, 1, 1), block=(32, 1, 1))


@cute.jit
def optional(a: cute.Tensor, x: cute.Tensor | None, scale: cutlass.Float32, y: cute.Tensor | None = None, z=None):
    """Fill a vector of 32 with a number."""
    _fill(a, scale, 1.0).launch(grid=(1, 1, 1), block=(32, 1, 1))


class Methods:
    """Functions of a class."""

    value = 6.0

    @classmethod
    @cute.jit
    def of_class(cls, a: cute.Tensor, scale: cutlass.Float32):
        """Fill a vector of 32."""
        _fill(a, scale, cls.value).launch(grid=(1, 1, 1), block=(32, 1, 1))

    @staticmethod
    @cute.jit
    def static(a: cute.Tensor, scale: cutlass.Float32):
        """Fill a vector of 32."""
        _fill(a, scale, Methods.value).launch(grid=(1, 1, 1), block=(32, 1, 1))

    @cute.jit
    def bound(this, a: cute.Tensor, scale: cutlass.Float32):
        """Fill a vector of 32."""
        _fill(a, scale, this.value).launch(grid=(1, 1, 1), block=(32, 1, 1))

    @cute.jit
    def __call__(this, a: cute.Tensor, scale: cutlass.Float32):
        """Fill a vector of 32."""
        _fill(a, scale, this.value).launch(grid=(1, 1, 1), block=(32, 1, 1))


class Heir(Methods):
    """The same functions with another value."""

    value = 7.0
