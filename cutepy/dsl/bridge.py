"""The bridge between `cutepy.layouts` and the CuTe DSL's own values, for use while the DSL traces."""

from typing import Any

from cutepy.dsl.atoms import read_copy_atom, read_mma_atom, read_tiled_copy, read_tiled_mma
from cutepy.dsl.version import require
from cutepy.layouts import ComposedLayout, Layout, ParseError, ScaledBasis, SmemPtr, Swizzle, parse, to_text

_INT64 = range(-(2**63), 2**63)


def to_cute(value: Any) -> Any:  # noqa: ANN401 - any value of the notation in, the DSL's out
    """Convert a value of `cutepy.layouts` to the DSL, inside a ``@cute.jit`` or ``@cute.kernel`` function.

    value of `cutepy.layouts` -> value of ``cutlass.cute`` that is the same function.

    Parameters
    ----------
    value : Layout, ComposedLayout, Swizzle, ScaledBasis, int, None or tuple of these
        Tuples are the DSL's IntTuples, coordinates and tilers.

    Returns
    -------
    cute.Layout, cute.ComposedLayout, cute.Swizzle, cute.ScaledBasis, int, None or tuple
        The DSL has fewer forms than cutepy, so ``from_cute(to_cute(x))`` is another form of the same function in two
        cases: a swizzle of 0 bits becomes ``Sw<0,4,3>``, and ``A o a o (B o b o C)`` becomes ``(A o a o B) o b o C``.

    Raises
    ------
    RuntimeError
        If no function is being traced.
    TypeError
        If `value` is of none of these types.
    ValueError
        If the DSL cannot hold the value: extents below 1, integers beyond 64 bits, scaled bases under a swizzle, a
        shared-memory address.

    Notes
    -----
    The DSL has no ``smem_ptr[16b](unset)``. Its shared-memory layouts are written ``S<3,4,3> o 0 o ...`` with the
    swizzle of byte addresses, to be taken apart: ``.inner`` goes to the pointer and ``.outer`` to the tensor
    (``allocate_tensor(dtype, layout.outer, 1024, swizzle=layout.inner)``). `to_cute` writes them the same way. For a
    layout that maps coordinates to swizzled *elements*, pass ``layout.position_independent()``.

    Examples
    --------
    >>> @cute.jit  # doctest: +SKIP
    ... def show():
    ...     print(to_cute(Layout((2, (4, 2)), (1, (2, 8)))))
    (2,(4,2)):(1,(2,8))
    """
    if value is None or type(value) is int:
        return value
    if isinstance(value, tuple):
        return tuple(map(to_cute, value))
    if not isinstance(value, Layout | ComposedLayout | Swizzle | ScaledBasis):
        raise TypeError(
            f"to_cute takes a Layout, ComposedLayout, Swizzle, ScaledBasis, int, None or a tuple of these, "
            f"got {type(value).__name__}: {value!r}"
        )
    cute = require("cutlass.cute", "make_layout", "make_composed_layout", "make_swizzle", "ScaledBasis")
    _check_tracing("to_cute", to_text(value))
    return _build(cute, value)


def _build(cute: Any, value: Any) -> Any:  # noqa: ANN401
    try:
        match value:
            case Layout():
                _check_integers(value)
                return cute.make_layout(value.shape, stride=_strides(cute, value.stride))
            case ScaledBasis():
                return _strides(cute, value)
            case Swizzle():
                return cute.make_swizzle(value.bits, value.base, value.shift)
            case ComposedLayout():
                return _build_composed(cute, value)
    except _Unsupported:
        raise
    except Exception as error:  # the DSL raises ValueError, TypeError, RuntimeError and MLIRError
        reason = str(error).strip() or type(error).__name__
        raise _Unsupported(f"the DSL cannot hold {to_text(value)}: {reason}") from error
    raise TypeError(f"to_cute: a composed layout is of layouts and swizzles, got {type(value).__name__}: {value!r}")


class _Unsupported(ValueError):
    """A value that the DSL cannot hold; ValueError to callers."""


def _build_composed(cute: Any, value: ComposedLayout) -> Any:  # noqa: ANN401
    left, offset, right = value.layoutB, value.offset, value.layoutA
    while isinstance(right, ComposedLayout):  # the DSL's right operand is a plain layout, so group to the left
        left = ComposedLayout(left, offset, right.layoutB)
        offset, right = right.offset, right.layoutA
    if isinstance(offset, SmemPtr):
        if offset.address is not None:
            raise _Unsupported(
                f"the DSL cannot hold {to_text(value)}: an address belongs to a pointer; "
                f"convert the layout with smem_ptr[{offset.bits}b](unset)"
            )
        offset = 0
    return cute.make_composed_layout(_build(cute, left), offset, _build(cute, right))


def _strides(cute: Any, stride: Any) -> Any:  # noqa: ANN401
    if isinstance(stride, tuple):
        return tuple(_strides(cute, s) for s in stride)
    if isinstance(stride, ScaledBasis):
        return cute.ScaledBasis(stride.value, list(stride.modes))
    return stride


def _check_integers(layout: Layout) -> None:
    for integers in (layout.shape, layout.stride):
        stack = [integers]
        while stack:
            item = stack.pop()
            if isinstance(item, tuple):
                stack.extend(item)
            elif (item.value if isinstance(item, ScaledBasis) else item) not in _INT64:
                raise _Unsupported(f"the DSL cannot hold {to_text(layout)}: {to_text(item)} is beyond 64 bits")


def from_cute(value: Any) -> Any:  # noqa: ANN401 - the DSL's value in, any value of the notation out
    """Convert a layout, an atom or a tiling of the DSL to a value of `cutepy.layouts` that outlives the trace.

    value of ``cutlass.cute`` -> value of `cutepy.layouts` that is the same function. The DSL's own values die with
    the trace that made them: printing one later can end the process.

    Parameters
    ----------
    value : cute.Layout, cute.ComposedLayout, cute.Swizzle, cute.ScaledBasis, int, None or tuple of these
        Static: every integer known while tracing.
    value : cute.TiledMma, cute.MmaAtom, cute.TiledCopy or cute.CopyAtom
        Also a thread's slice of a tiling, which is read as the whole.

    Returns
    -------
    Layout, ComposedLayout, Swizzle, ScaledBasis, int, None or tuple
    sm90.TiledMMA, sm90.MmaTraits, sm90.TiledCopy or sm90.CopyAtom
        Layouts of threads and values are the same functions as the DSL's, though their modes may nest otherwise. An
        atom that `cutepy.layouts` knows is the one of C++'s name.

    Raises
    ------
    RuntimeError
        If no function is being traced, or `value` belongs to a trace that has ended.
    ValueError
        If an integer in `value` is known only at run time; the message names it.
    TypeError
        If `value` is of none of these types.

    Examples
    --------
    >>> @cute.jit  # doctest: +SKIP
    ... def collect(found: cutlass.Constexpr):
    ...     found.append(from_cute(cute.make_layout((8, 4), stride=(4, 1))))
    """
    if value is None or type(value) is int:
        return value
    if isinstance(value, tuple | list):
        return tuple(map(from_cute, value))
    cute = require(
        "cutlass.cute", "Layout", "ComposedLayout", "Swizzle", "ScaledBasis", "Tensor", "TiledCopy", "TiledMma"
    )
    atoms = {
        cute.TiledMma: read_tiled_mma,
        cute.TiledCopy: read_tiled_copy,
        cute.MmaAtom: read_mma_atom,
        cute.CopyAtom: read_copy_atom,
    }
    for kind, read in atoms.items():
        if isinstance(value, kind):
            for part in value.__extract_mlir_values__():
                _check_alive(part)
            return read(value, from_cute)
    match value:
        case cute.ScaledBasis():
            return ScaledBasis(_static(value.value, value), tuple(_static(mode, value) for mode in value.mode))
        case cute.Swizzle():
            _check_alive(value)
            return Swizzle(value.num_bits, value.num_base, value.num_shift)
        case cute.Layout():
            _check_alive(value)
            return _read_layout(value)
        case cute.ComposedLayout():
            return _read_composed(cute, value)
        case cute.Tensor():
            raise TypeError("from_cute takes layouts, got a Tensor; pass its .layout")
    return _static(value, value)


def _read_layout(value: Any) -> Layout:  # noqa: ANN401
    # The text is complete, and the DSL fails to unpack some shapes, such as (()).
    text = str(value)
    try:
        layout: Layout = parse(text)
    except ParseError as error:
        raise ValueError(f"from_cute: {error}") from error
    return layout


def _read_composed(cute: Any, value: Any) -> ComposedLayout:  # noqa: ANN401
    _check_alive(value.value if hasattr(value, "value") else value.outer)
    if not isinstance(value.inner, cute.Layout | cute.ComposedLayout | cute.Swizzle):
        raise TypeError(f"from_cute: the function {value.inner!r} inside a composed layout has no form in the notation")
    return ComposedLayout(from_cute(value.inner), _static(value.offset, value), from_cute(value.outer))


def _static(part: Any, whole: Any) -> Any:  # noqa: ANN401
    """Convert an integer or IntTuple of the DSL, a part of `whole`, to Python's integers."""
    if type(part) is int:
        return part
    if isinstance(part, tuple | list):
        return tuple(_static(item, whole) for item in part)
    numeric = require("cutlass", "Numeric").Numeric
    if not isinstance(part, numeric) or isinstance(part.value, bool | float):
        raise TypeError(
            "from_cute takes a Layout, ComposedLayout, Swizzle, ScaledBasis or IntTuple of the DSL, "
            f"got {type(part).__name__}: {part!r}"
        )
    if type(part.value) is int:
        return part.value
    raise ValueError(f"from_cute: {part!r} in {whole} is known only at run time; cutepy.layouts holds integers")


def _insertion_point() -> Any:  # noqa: ANN401
    """Return the DSL's current insertion point; None when it is not tracing."""
    ir = require("cutlass._mlir.ir", "InsertionPoint", "Context")
    try:
        return ir.InsertionPoint.current
    except ValueError:
        return None


def _check_tracing(function: str, operand: str) -> None:
    if _insertion_point() is None:
        raise RuntimeError(
            f"{function}({operand}) outside a trace; call it in a @cute.jit or @cute.kernel function while it compiles"
        )


def _check_alive(value: Any) -> None:  # noqa: ANN401
    """Refuse a value of an ended trace without reading its memory, which is freed."""
    if _insertion_point() is None:
        raise RuntimeError(
            "from_cute outside a trace: the DSL's values end with the function being compiled; "
            "call from_cute inside it and keep the result"
        )
    context = require("cutlass._mlir.ir", "Context").Context.current
    if value.context != context:
        raise RuntimeError("from_cute: this value belongs to a trace that has ended; call from_cute in that trace")
