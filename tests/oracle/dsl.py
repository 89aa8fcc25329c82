"""The CuTe DSL as a live oracle: build the same layouts while it traces a host function, and read what it prints."""

import re
from collections.abc import Callable, Sequence
from typing import Any

from cutepy.layouts import ComposedLayout, Layout, Swizzle, parse, to_text

Case = tuple[str, tuple[int | str, ...]]

# Operation -> the call that the DSL offers for it, with cutepy's arguments already built as the DSL's values.
_CALLS: dict[str, Callable[..., Any]] = {
    "recast_layout": lambda cute, layout, old_bits, new_bits: cute.recast_layout(new_bits, old_bits, layout),
    "coalesce": lambda cute, layout, profile=None: cute.coalesce(layout, target_profile=profile),
    "slice": lambda cute, coordinate, layout: cute.slice_(layout, coordinate),
    "get": lambda cute, layout, *mode: cute.get(layout, mode=list(mode)),
    "select": lambda cute, layout, modes: cute.select(layout, mode=list(modes)),
    "group": lambda cute, layout, begin, end: cute.group_modes(layout, begin, end),
    "tile_to_shape": lambda cute, block, shape, order: cute.tile_to_shape(block, shape, order),
}
# Calls of the same name and arguments. Not asked: `raked_product`, `ceil_div` and `shape_div` of tuples, and `flatten`
# and friends of a swizzled layout, which 4.8.1 answers otherwise than C++ CuTe, and what crashes it.
_SAME = (
    *("complement", "composition", "left_inverse", "right_inverse", "nullspace", "filter_zeros"),
    *("max_common_layout", "max_common_vector", "logical_divide", "zipped_divide", "tiled_divide", "flat_divide"),
    *("logical_product", "zipped_product", "tiled_product", "flat_product", "blocked_product"),
    *("make_ordered_layout", "make_layout_like", "make_identity_layout"),
)
_WIDTHS = {"uint8_t": 8, "uint16_t": 16, "uint32_t": 32, "uint64_t": 64, "uint128_t": 128}


def offers(op: str, operands: Sequence[int | str]) -> bool:
    """Return True if the DSL answers such a case as CuTe does: plain layouts, layout tilers, no negative strides."""
    name = op.split("<")[0]
    layouts = [x for x in operands if isinstance(x, str) and ":" in x]
    if name not in (*_CALLS, *_SAME) or any(" o " in x or "Sw<" in x for x in map(str, operands)):
        return False
    if any(_has_single(x) or "-" in str(x) for x in operands):
        return False
    if name in ("left_inverse", "right_inverse"):  # where strides repeat, the sorts of the two differ
        strides = re.findall(r"\d+", str(operands[0]).partition(":")[2])
        return len(set(strides)) == len(strides)
    if name == "tile_to_shape":
        return len(operands) == 3
    if name == "complement":
        return len(operands) == 2 and isinstance(operands[1], int)
    if name.endswith(("divide", "product")) or name == "composition":
        return len(layouts) == 2 and not any(x.startswith("<") for x in layouts)
    return True


def _has_single(operand: int | str) -> bool:
    """Return True if it contains a rank-1 tuple: the DSL unwraps some of them."""
    return isinstance(operand, str) and re.search(r"\((-?\d+|\([^()]*\))\)", operand) is not None


def agree(first: Any, second: Any) -> bool:
    """Equality of answers; the strides of size-1 modes, which never matter, are taken as 0: the DSL zeroes some."""
    return bool(_normal(first) == _normal(second))


def _normal(answer: Any) -> Any:
    value = parse(answer) if isinstance(answer, str) and "Error" not in answer else answer
    if not isinstance(value, Layout):
        return answer

    def zeroed(shape: Any, stride: Any) -> Any:
        if isinstance(shape, tuple):
            return tuple(zeroed(s, d) for s, d in zip(shape, stride, strict=True))
        return 0 if shape == 1 else stride

    return value.shape, zeroed(value.shape, value.stride)


def answer(cases: Sequence[Case]) -> list[Any]:
    """The DSL's answer to each case, as the vectors write it; the text of its exception where it raises one."""
    import cutlass.cute as cute

    answers: list[Any] = []

    def ask() -> None:  # called, not traced: the DSL rewrites the body of a traced function
        answers.extend(_answer(cute, op, operands) for op, operands in cases)

    @cute.jit
    def trace():
        ask()

    trace()
    return answers


def _answer(cute: Any, op: str, operands: Sequence[int | str]) -> Any:
    name, _, template = op.partition("<")
    widths = [_WIDTHS[width] for width in template.rstrip(">").split(",")] if template else []
    try:
        return _written(_call(cute, name, [*(_built(cute, _read(x)) for x in operands), *widths]))
    except Exception as error:
        return f"{type(error).__name__}: {(str(error).strip() or 'no message').splitlines()[-1]}"


def _read(operand: int | str) -> Any:
    return parse(operand) if isinstance(operand, str) else operand


def _call(cute: Any, name: str, arguments: list[Any]) -> Any:
    return _CALLS[name](cute, *arguments) if name in _CALLS else getattr(cute, name)(*arguments)


def _built(cute: Any, value: Any) -> Any:
    """A value of ours as the DSL's."""
    if isinstance(value, Layout):
        return cute.make_layout(value.shape, stride=value.stride)
    if isinstance(value, Swizzle):
        return cute.make_swizzle(value.bits, value.base, value.shift)
    if isinstance(value, ComposedLayout):
        return cute.make_composed_layout(_built(cute, value.layoutB), value.offset, _built(cute, value.layoutA))
    if isinstance(value, tuple):
        return tuple(_built(cute, item) for item in value)
    return value


def _written(result: Any) -> Any:
    """The DSL's value as the vectors write it."""
    if isinstance(result, bool | int):
        return result
    if isinstance(result, tuple):
        return to_text(parse(str(result).replace(" ", "").replace(",)", ")").replace("None", "_")))
    return to_text(parse(str(result)))
