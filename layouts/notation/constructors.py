"""Constructors of terms by name: those of C++ CuTe, the CuTe DSL, cutepy, Triton and Gluon.

A constructor is a function whose parameters are the arguments that may be written; the values arrive as `terms` reads
them: integers, tuples, lists, dictionaries, and values of the notation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from ..basis import E, ScaledBasis
from ..composed import ComposedLayout, SmemPtr, Swizzle, make_swizzle
from ..coordinates import compact_row_major
from ..errors import LayoutError
from ..layout import Layout, make_identity_layout, make_layout as _make_layout, make_ordered_layout
from ..linear import triton_encodings as triton
from ..linear.layout import LinearLayout
from ..modes import LayoutBase
from ..sm80.mma import WarpMmaTraits
from ..sm90.accumulator import AccumulatorCoordinates, OperandCoordinates
from ..sm90.copy_atom import CopyAtom
from ..sm90.descriptor import GmmaDescriptor
from ..sm90.im2col_map import Im2colTensorMap
from ..sm90.iterator import GmmaDescriptorIterator
from ..sm90.smem_plan import SmemArray, SmemPlan
from ..sm90.staged import DenseTile, StagedTile
from ..sm90.stmatrix import MatrixCopyTraits
from ..sm90.tensor_map import TensorMap
from ..sm90.tiled_copy import TiledCopy
from ..sm90.tiled_mma import TiledMMA
from ..sm90.traits import CopyTraits, MmaTraits
from ..sm90.wgmma import WgmmaTraits
from ..sm100.descriptor import SmemDescriptor
from ..sm100.instr_descriptor import InstrDescriptor
from ..sm100.narrow_map import NarrowTensorMap
from ..sm100.smem import SmemDescriptorIterator
from ..sm100.tma import FourRows
from ..sm100.tmem import TmemPlace, TmemTensor
from ..sm100.tmem_copy import TmemCopyTraits
from ..sm100.tmem_cp import TmemCpTraits
from ..sm100.tmem_plan import TmemPlan
from ..sm100.umma import UmmaTraits
from .printed import PrintedCopy, PrintedMMA

Make: TypeAlias = Callable[..., Any]

_LEFT, _RIGHT = "LayoutLeft", "LayoutRight"


def is_encoding(value: object) -> bool:
    """Return whether a value is a Triton encoding, which needs a shape to become a layout."""
    return isinstance(value, triton.Encoding)


def is_int_tuple(value: object) -> bool:
    """Return whether a value is an integer or a nested tuple of integers."""
    if isinstance(value, tuple):
        return all(map(is_int_tuple, value))
    return isinstance(value, int) and not isinstance(value, bool)


def _is_stride(value: object) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_stride, value))
    return isinstance(value, ScaledBasis) or is_int_tuple(value)


def _layout(shape: Any, stride: Any = None) -> Layout:  # noqa: ANN401
    """Make a layout: of its shape alone the compact one whose first mode is fastest."""
    if isinstance(shape, Layout) and stride is None:
        return shape
    if not is_int_tuple(shape):
        raise TypeError(f"the shape must be an integer or a tuple of integers, got {shape!r}")
    if stride == _RIGHT:
        stride = compact_row_major(shape)
    elif stride == _LEFT:
        stride = None
    if stride is None:
        return Layout(shape)
    if not _is_stride(stride):
        raise TypeError(f"the stride must hold integers and scaled bases, got {stride!r}")
    return Layout(shape, stride)


def make_layout(*shape_or_layouts: Any, shape: Any = None, stride: Any = None) -> Any:  # noqa: ANN401
    """Make a layout of a shape and a stride, or of layouts, each of which becomes a mode."""
    first = shape_or_layouts
    if first and all(isinstance(layout, LayoutBase) for layout in first):
        if shape is not None or stride is not None:
            raise TypeError("layouts have shapes and strides of their own; tell neither beside them")
        return _make_layout(*first)
    told = [*first[:1], *([shape] if shape is not None else [])]
    strides = [*first[1:], *([stride] if stride is not None else [])]
    if len(told) != 1 or len(strides) > 1:
        raise TypeError("need one shape and at most one stride, or layouts alone")
    return _layout(told[0], *strides)


def _composed(a: Any, offset: Any, b: Any) -> ComposedLayout:  # noqa: ANN401
    for layout in (a, b):
        if not isinstance(layout, LayoutBase | Swizzle):
            raise TypeError(f"a composed layout is of layouts and swizzles, got {layout!r}")
    return ComposedLayout(a, offset, b)


def _make_composed_layout(*operands: Any, **named: Any) -> ComposedLayout:  # noqa: ANN401
    if named or len(operands) != 3:
        needed = "make_composed_layout takes three operands by position"
        raise TypeError(f"{needed}: the DSL calls the first of them inner, C++ CuTe and cutepy outer")
    return _composed(*operands)


def _repr_of_composed(layoutB: Any, offset: Any, layoutA: Any) -> ComposedLayout:  # noqa: ANN401
    return _composed(layoutB, offset, layoutA)


def _composition(a: Any, b: Any) -> ComposedLayout:  # noqa: ANN401
    if not isinstance(a, Swizzle):
        raise TypeError(f"composition is read of a swizzle and a layout, got {a!r}; compute others with composition()")
    return _composed(a, 0, b)


def _integers(name: str, values: Sequence[object]) -> None:
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{name} must be an integer, got {value!r}")


def _swizzle(bits: Any, base: Any, shift: Any = None) -> Swizzle:  # noqa: ANN401
    shift = bits if shift is None else shift
    _integers("bits, base and shift", (bits, base, shift))
    return Swizzle(bits, base, shift)


def _make_swizzle(*numbers: Any) -> Swizzle:  # noqa: ANN401
    if len(numbers) == 2:
        return make_swizzle(*numbers)
    if len(numbers) != 3:
        raise TypeError(f"make_swizzle takes bits, base and shift, got {len(numbers)} arguments")
    return Swizzle(*numbers)


def _constant(value: Any) -> int:  # noqa: ANN401
    """Return the value of ``C<8>``."""
    _integers("a static integer", (value,))
    return int(value)


def _scaled_basis(value: Any, modes: Any) -> Any:  # noqa: ANN401
    _integers("a scaled basis", (value,))
    path = modes if isinstance(modes, tuple) else tuple(modes) if isinstance(modes, list) else (modes,)
    _integers("a mode", path)
    return ScaledBasis(value, path)


def _scaled_basis_type(value: Any, *modes: Any) -> Any:  # noqa: ANN401
    return _scaled_basis(value, modes) if modes else value


def _unit_basis(*modes: Any) -> Any:  # noqa: ANN401
    path = modes[0] if len(modes) == 1 and isinstance(modes[0], list | tuple) else modes
    _integers("a mode", path)
    return E(*path)


def _tuple(*items: Any) -> tuple[Any, ...]:  # noqa: ANN401
    return items


def _identity(shape: Any) -> Layout:  # noqa: ANN401
    if not is_int_tuple(shape):
        raise TypeError(f"the shape must be an integer or a tuple of integers, got {shape!r}")
    return make_identity_layout(shape)


def _ordered(shape: Any, order: Any) -> Layout:  # noqa: ANN401
    if not is_int_tuple(shape) or not is_int_tuple(order):
        raise TypeError(f"shape and order must be integers or tuples of integers, got {shape!r} and {order!r}")
    return make_ordered_layout(shape, order)


def bases_of(name: str, value: object, rank: int | None = None) -> tuple[tuple[int, ...], ...]:
    """Return a list of bases, each a list of steps or the step along a single dimension.

    Raises
    ------
    TypeError
        If the value is no list of bases, or a basis does not have `rank` steps.
    """
    if not isinstance(value, list | tuple):
        raise TypeError(f"{name} must be a list of bases, as [[0, 1], [0, 2]], got {value!r}")
    bases = []
    for basis in value:
        steps = (basis,) if isinstance(basis, int) else basis
        if not isinstance(steps, list | tuple) or any(isinstance(x, bool) or not isinstance(x, int) for x in steps):
            raise TypeError(f"a basis of {name} must be a list of integers, got {basis!r}")
        if rank is not None and len(steps) != rank:
            raise TypeError(f"a basis of {name} must have {rank} steps, got {len(steps)}: {list(steps)}")
        bases.append(tuple(steps))
    return tuple(bases)


def linear_of_bases(named: Mapping[str, object], sizes: Sequence[int] | None = None) -> LinearLayout:
    """Make a linear layout of the bases of its in-dimensions, whose out-dimensions are dim0, dim1 ...

    Raises
    ------
    TypeError, LayoutError
        If they are no bases, or not all of one rank, or none tells the rank.

    Examples
    --------
    >>> linear_of_bases({"lane": [[0, 1]], "warp": []})
    LinearLayout({'lane': [[0, 1]], 'warp': []}, {'dim0': 1, 'dim1': 2})
    """
    bases = {name: bases_of(name, value) for name, value in named.items()}
    ranks = {len(basis) for of_dim in bases.values() for basis in of_dim} | (
        {len(sizes)} if sizes is not None else set()
    )
    if len(ranks) != 1:
        needed = "need bases, as register = [[0, 1]], lane = [[1, 0]], all of one rank"
        raise TypeError(f"{needed}, got {'ranks ' + str(sorted(ranks)) if ranks else 'none'}")
    names = [f"dim{i}" for i in range(ranks.pop())]
    return LinearLayout(bases, names if sizes is None else dict(zip(names, sizes, strict=True)))


def _linear_layout(bases: Any, out_dims: Any) -> LinearLayout:  # noqa: ANN401
    """Make a LinearLayout as its ``repr`` writes it."""
    if not isinstance(bases, dict):
        raise TypeError(f"bases must be a dictionary, got {bases!r}")
    is_of_names = isinstance(out_dims, list | tuple) and all(isinstance(name, str) for name in out_dims)
    if not is_of_names and not isinstance(out_dims, dict):
        raise TypeError(f"out_dims must be a dictionary of sizes or a list of names, got {out_dims!r}")
    return LinearLayout({name: bases_of(name, value, len(out_dims)) for name, value in bases.items()}, out_dims)


# Triton and Gluon


def _ints(name: str, value: object) -> tuple[int, ...]:
    if not isinstance(value, list | tuple) or any(isinstance(x, bool) or not isinstance(x, int) for x in value):
        raise TypeError(f"{name} must be a list of integers, got {value!r}")
    return tuple(value)


def _int(name: str, value: object) -> int:
    _integers(name, (value,))
    assert isinstance(value, int)
    return value


def _bool(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be true or false, got {value!r}")
    return value


def _encoding(name: str, value: object) -> triton.Encoding:
    if not isinstance(value, triton.Encoding):
        raise TypeError(f"{name} must be an encoding of Triton's, got {value!r}")
    return value


def _cga(bases: object, ctas: object = None, split: object = None, order: object = None) -> tuple[tuple[int, ...], ...]:
    """Return the cluster's bases, from their list or from the counts that earlier versions of Triton write."""
    counts = (ctas, split, order)
    if bases is not None:
        if any(count is not None for count in counts):
            raise TypeError("the cluster is given twice: CGALayout beside CTAsPerCGA, CTASplitNum or CTAOrder")
        return bases_of("CGALayout", bases)
    if all(count is None for count in counts):
        return ()
    if any(count is None for count in counts):
        raise TypeError("CTAsPerCGA, CTASplitNum and CTAOrder are told together or not at all")
    names = ("CTAsPerCGA", "CTASplitNum", "CTAOrder")
    return triton.cga_of_counts(*(_ints(name, count) for name, count in zip(names, counts, strict=True)))


def _blocked(
    sizePerThread: Any,  # noqa: ANN401
    threadsPerWarp: Any,  # noqa: ANN401
    warpsPerCTA: Any,  # noqa: ANN401
    order: Any,  # noqa: ANN401
    CGALayout: Any = None,  # noqa: ANN401
    CTAsPerCGA: Any = None,  # noqa: ANN401
    CTASplitNum: Any = None,  # noqa: ANN401
    CTAOrder: Any = None,  # noqa: ANN401
) -> triton.Blocked:
    return triton.Blocked(
        _ints("sizePerThread", sizePerThread),
        _ints("threadsPerWarp", threadsPerWarp),
        _ints("warpsPerCTA", warpsPerCTA),
        _ints("order", order),
        _cga(CGALayout, CTAsPerCGA, CTASplitNum, CTAOrder),
    )


def _gluon_blocked(
    size_per_thread: Any,  # noqa: ANN401
    threads_per_warp: Any,  # noqa: ANN401
    warps_per_cta: Any,  # noqa: ANN401
    order: Any,  # noqa: ANN401
    cga_layout: Any = None,  # noqa: ANN401
    ctas_per_cga: Any = None,  # noqa: ANN401
    cta_split_num: Any = None,  # noqa: ANN401
    cta_order: Any = None,  # noqa: ANN401
) -> triton.Blocked:
    return _blocked(
        size_per_thread, threads_per_warp, warps_per_cta, order, cga_layout, ctas_per_cga, cta_split_num, cta_order
    )


def _nvidia_mma(
    versionMajor: Any,  # noqa: ANN401
    warpsPerCTA: Any,  # noqa: ANN401
    instrShape: Any,  # noqa: ANN401
    versionMinor: Any = 0,  # noqa: ANN401
    CGALayout: Any = None,  # noqa: ANN401
    CTAsPerCGA: Any = None,  # noqa: ANN401
    CTASplitNum: Any = None,  # noqa: ANN401
    CTAOrder: Any = None,  # noqa: ANN401
) -> triton.Mma:
    return triton.Mma(
        (_int("versionMajor", versionMajor), _int("versionMinor", versionMinor)),
        _ints("warpsPerCTA", warpsPerCTA),
        _ints("instrShape", instrShape),
        _cga(CGALayout, CTAsPerCGA, CTASplitNum, CTAOrder),
    )


def _gluon_mma(
    version: Any,  # noqa: ANN401
    warps_per_cta: Any,  # noqa: ANN401
    instr_shape: Any,  # noqa: ANN401
    cga_layout: Any = None,  # noqa: ANN401
    ctas_per_cga: Any = None,  # noqa: ANN401
    cta_split_num: Any = None,  # noqa: ANN401
    cta_order: Any = None,  # noqa: ANN401
) -> triton.Mma:
    return triton.Mma(
        _ints("version", version),
        _ints("warps_per_cta", warps_per_cta),
        _ints("instr_shape", instr_shape),
        _cga(cga_layout, ctas_per_cga, cta_split_num, cta_order),
    )


def _slice(dim: Any, parent: Any) -> triton.Slice:  # noqa: ANN401
    return triton.Slice(_int("dim", dim), _encoding("parent", parent))


def _dot_op(opIdx: Any, parent: Any, kWidth: Any = 0) -> triton.DotOperand:  # noqa: ANN401
    return triton.DotOperand(_int("opIdx", opIdx), _encoding("parent", parent), _int("kWidth", kWidth))


def _gluon_dot(operand_index: Any, parent: Any, k_width: Any) -> triton.DotOperand:  # noqa: ANN401
    return _dot_op(operand_index, parent, k_width)


def _swizzled_shared(
    vec: Any,  # noqa: ANN401
    perPhase: Any,  # noqa: ANN401
    maxPhase: Any,  # noqa: ANN401
    order: Any,  # noqa: ANN401
    CGALayout: Any = None,  # noqa: ANN401
    CTAsPerCGA: Any = None,  # noqa: ANN401
    CTASplitNum: Any = None,  # noqa: ANN401
    CTAOrder: Any = None,  # noqa: ANN401
) -> triton.Swizzled:
    return triton.Swizzled(
        _int("vec", vec),
        _int("perPhase", perPhase),
        _int("maxPhase", maxPhase),
        _ints("order", order),
        _cga(CGALayout, CTAsPerCGA, CTASplitNum, CTAOrder),
    )


def _gluon_swizzled(
    vec: Any,  # noqa: ANN401
    per_phase: Any,  # noqa: ANN401
    max_phase: Any,  # noqa: ANN401
    order: Any,  # noqa: ANN401
    cga_layout: Any = None,  # noqa: ANN401
    ctas_per_cga: Any = None,  # noqa: ANN401
    cta_split_num: Any = None,  # noqa: ANN401
    cta_order: Any = None,  # noqa: ANN401
) -> triton.Swizzled:
    return _swizzled_shared(vec, per_phase, max_phase, order, cga_layout, ctas_per_cga, cta_split_num, cta_order)


def _nvmma_shared(
    swizzlingByteWidth: Any,  # noqa: ANN401
    elementBitWidth: Any,  # noqa: ANN401
    transposed: Any = False,  # noqa: ANN401
    fp4Padded: Any = False,  # noqa: ANN401
    rank: Any = None,  # noqa: ANN401
    CGALayout: Any = None,  # noqa: ANN401
    CTAsPerCGA: Any = None,  # noqa: ANN401
    CTASplitNum: Any = None,  # noqa: ANN401
    CTAOrder: Any = None,  # noqa: ANN401
) -> triton.NvmmaShared:
    if _bool("fp4Padded", fp4Padded):
        raise LayoutError("nvmma_shared", (), "padded FP4 is not read: its offsets hold padding beside elements")
    return triton.NvmmaShared(
        _int("swizzlingByteWidth", swizzlingByteWidth),
        _int("elementBitWidth", elementBitWidth),
        _bool("transposed", transposed),
        _cga(CGALayout, CTAsPerCGA, CTASplitNum, CTAOrder),
        None if rank is None else _int("rank", rank),
    )


def _gluon_nvmma_shared(
    swizzle_byte_width: Any,  # noqa: ANN401
    element_bitwidth: Any,  # noqa: ANN401
    rank: Any = 2,  # noqa: ANN401
    transposed: Any = False,  # noqa: ANN401
    fp4_padded: Any = False,  # noqa: ANN401
    cga_layout: Any = None,  # noqa: ANN401
    ctas_per_cga: Any = None,  # noqa: ANN401
    cta_split_num: Any = None,  # noqa: ANN401
    cta_order: Any = None,  # noqa: ANN401
) -> triton.NvmmaShared:
    return _nvmma_shared(
        swizzle_byte_width,
        element_bitwidth,
        transposed,
        fp4_padded,
        rank,
        cga_layout,
        ctas_per_cga,
        cta_split_num,
        cta_order,
    )


def _linear(register: Any, lane: Any, warp: Any, block: Any) -> triton.Linear:  # noqa: ANN401
    bases = {"register": register, "lane": lane, "warp": warp, "block": block}
    return triton.Linear(linear_of_bases(bases))


def _gluon_linear(
    reg_bases: Any,  # noqa: ANN401
    lane_bases: Any,  # noqa: ANN401
    warp_bases: Any,  # noqa: ANN401
    block_bases: Any,  # noqa: ANN401
    shape: Any,  # noqa: ANN401
) -> triton.Linear:
    bases = {"register": reg_bases, "lane": lane_bases, "warp": warp_bases, "block": block_bases}
    return triton.Linear(linear_of_bases(bases, _ints("shape", shape)))


def _shared_linear(offset: Any, block: Any = (), alignment: Any = 16) -> LinearLayout:  # noqa: ANN401
    bytes_ = _int("alignment", alignment)  # a property of the allocation, not of the map from offsets to elements
    if bytes_ < 1 or bytes_ & (bytes_ - 1):
        raise TypeError(f"alignment must be a power of two, got {bytes_}")
    return linear_of_bases({"offset": offset, "block": block})


def _gluon_shared_linear(offset_bases: Any, block_bases: Any = (), alignment: Any = 16) -> LinearLayout:  # noqa: ANN401
    return _shared_linear(offset_bases, block_bases, alignment)


ATTRIBUTES: Mapping[str, Make] = {
    "blocked": _blocked,
    "dot_op": _dot_op,
    "linear": _linear,
    "nvidia_mma": _nvidia_mma,
    "nvmma_shared": _nvmma_shared,
    "shared_linear": _shared_linear,
    "slice": _slice,
    "swizzled_shared": _swizzled_shared,
}
"""Attributes of Triton's dialect ``ttg``."""

TEMPLATES: Mapping[str, Make] = {
    **dict.fromkeys(("tuple", "Shape", "Stride", "Step", "Coord", "Tile", "ArithmeticTuple"), _tuple),
    **dict.fromkeys(("C", "Int", "constant", "integral_constant"), _constant),
    "ComposedLayout": _composed,
    "E": _unit_basis,
    "Layout": _layout,
    "ScaledBasis": _scaled_basis_type,
    "Swizzle": _swizzle,
    "smem_ptr_flag_bits": SmemPtr,
}
"""Templates of C++ CuTe."""

CALLS: Mapping[str, Make] = {
    **dict.fromkeys(("make_shape", "make_stride", "make_tuple", "make_coord", "make_tile", "make_step"), _tuple),
    # C++ CuTe, the CuTe DSL, pycute and cutepy's own repr
    "ComposedLayout": _repr_of_composed,
    "E": _unit_basis,
    "Int": _constant,
    "Layout": _layout,
    "LinearLayout": _linear_layout,
    "ScaledBasis": _scaled_basis,
    "SmemPtr": SmemPtr,
    "Swizzle": _swizzle,
    "composition": _composition,
    "make_composed_layout": _make_composed_layout,
    "make_identity_layout": _identity,
    "make_layout": make_layout,
    "make_ordered_layout": _ordered,
    "make_swizzle": _make_swizzle,
    # Gluon
    "BlockedLayout": _gluon_blocked,
    "DistributedLinearLayout": _gluon_linear,
    "DotOperandLayout": _gluon_dot,
    "NVMMADistributedLayout": _gluon_mma,
    "NVMMASharedLayout": _gluon_nvmma_shared,
    "SharedLinearLayout": _gluon_shared_linear,
    "SliceLayout": _slice,
    "SwizzledSharedLayout": _gluon_swizzled,
    # cutepy's values that write all their fields
    **{
        kind.__name__: kind
        for kind in (
            AccumulatorCoordinates,
            CopyAtom,
            CopyTraits,
            DenseTile,
            FourRows,
            GmmaDescriptor,
            GmmaDescriptorIterator,
            Im2colTensorMap,
            InstrDescriptor,
            MatrixCopyTraits,
            MmaTraits,
            NarrowTensorMap,
            OperandCoordinates,
            PrintedCopy,
            PrintedMMA,
            SmemArray,
            SmemDescriptor,
            SmemDescriptorIterator,
            SmemPlan,
            StagedTile,
            TensorMap,
            TiledCopy,
            TiledMMA,
            TmemCopyTraits,
            TmemCpTraits,
            TmemPlace,
            TmemPlan,
            TmemTensor,
            UmmaTraits,
            WarpMmaTraits,
            WgmmaTraits,
        )
    },
}
"""Functions and classes of C++, the DSL, Gluon and cutepy."""

CONSTANTS: Mapping[str, Any] = {
    "GenColMajor": _LEFT,
    "GenRowMajor": _RIGHT,
    "LayoutLeft": _LEFT,
    "LayoutRight": _RIGHT,
    "Underscore": None,
    "smem_ptr_flag": SmemPtr(1),
}
"""Objects and types of C++ that have no arguments."""

NAMES = (frozenset({*TEMPLATES, *CALLS, *CONSTANTS}), frozenset(ATTRIBUTES))
"""The names of terms, and those of attributes."""
