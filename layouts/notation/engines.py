"""Engines: the left side of a printed tensor ``ENGINE o LAYOUT``, the location of its data.

References
----------
CuTe ``pointer_base.hpp``, ``pointer.hpp``, ``pointer_swizzle.hpp``, ``container/array_subbyte.hpp``,
``numeric/arithmetic_tuple.hpp``: their ``print``.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from ..basis import add_coordinates
from ..composed import ComposedLayout, SmemPtr, Swizzle
from ..coordinates import make_basis_like
from ..layout import Layout
from .tokens import Tokens

_IDENTITY = Swizzle(0, 4, 3)


class Engine(NamedTuple):
    """Location of a tensor's data; a value by itself only if it is a plain pointer to shared memory.

    Attributes
    ----------
    swizzle : Swizzle or None
        Acts on byte addresses.
    pointer : SmemPtr or None
        Where it points to shared memory and says so as C++ does.
    start : int or IntTuple
        First element of an iterator that counts, or of a coordinate tensor.
    memory : str
        gmem, smem, rmem, tmem or generic; empty where it is not told.
    bits : int or None
        Width of an element.
    address : int or None
        In bytes.
    """

    swizzle: Swizzle | None = None
    pointer: SmemPtr | None = None
    start: Any = 0
    memory: str = ""
    bits: int | None = None
    address: int | None = None

    @property
    def moves(self) -> bool:
        """True if the tensor's map differs from its layout's."""
        return self.swizzle is not None or not _is_zero(self.start)

    def under(self, layout: Any) -> ComposedLayout:  # noqa: ANN401 - Layout or ComposedLayout
        """Apply the engine's swizzle, or its start, to the layout."""
        if self.swizzle is not None:
            return ComposedLayout(self.swizzle, self.pointer, layout)
        if isinstance(self.start, int):
            if not isinstance(layout.cosize(), int) or not isinstance(layout(0), int):
                raise ValueError(f"the tensor starts at {self.start}, but its layout maps to coordinates")
            return ComposedLayout(_IDENTITY, self.start, layout)
        extents = add_coordinates(self.start, _widened(layout.coshape(), self.start))
        return ComposedLayout(Layout(extents, make_basis_like(extents)), self.start, layout)

    def told(self) -> str:
        """Describe the element width, memory and address beside a layout; empty without any."""
        facts = [f"{self.bits}-bit elements"] if self.bits else []
        facts += [f"in {self.memory}"] if self.memory else []
        facts += [f"at {self.address:#x}"] if self.address is not None else []
        return " ".join(facts)


def _widened(extents: Any, start: Any) -> Any:  # noqa: ANN401 - IntTuples
    """Pad extents with 1 for each further mode of `start`."""
    if not isinstance(start, tuple):
        return extents
    if not isinstance(extents, tuple):
        return tuple(_widened(1, part) for part in start) if extents == 1 else extents
    missing = start[len(extents) :]
    inner = tuple(map(_widened, extents, start))
    return (*inner, *extents[len(inner) :], *(_widened(1, part) for part in missing))


def _is_zero(start: Any) -> bool:  # noqa: ANN401 - IntTuple
    return all(map(_is_zero, start)) if isinstance(start, tuple) else start == 0


def pointer(reader: Tokens) -> Engine:
    """Read C++ CuTe's ``smem_ptr[16b](0x400)``, ``gmem_subptr[4b](0x400.0)``, ``ptr[32b](0x400)``."""
    token = reader.advance()
    memory, tmem, bits, address, null = token.match.group("memory", "tmem", "bits", "address", "null")
    memory = (memory or tmem or "").lower()
    value = int(address, 16) if address else 0 if null else None
    if memory != "smem":
        return Engine(memory=memory, bits=int(bits), address=value)
    return Engine(
        pointer=reader.build(token.start, SmemPtr, int(bits), value), memory=memory, bits=int(bits), address=value
    )


def dsl_pointer(reader: Any) -> Engine:  # noqa: ANN401 - Reader
    """Read ``ptr<f16, smem, align<1024>, S<3,4,3>>``."""
    start = reader.advance().start
    reader.expect("<")
    engine = described(reader, start)
    reader.expect(">")
    return engine


def raw_pointer(reader: Any) -> Engine:  # noqa: ANN401 - Reader
    """Read ``raw_ptr(0x400: f16, smem, align<128>)``."""
    start = reader.advance().start
    reader.expect("(")
    where = int(reader.expect("hex", "an address").text, 16)
    reader.expect(":")
    engine = described(reader, start)
    reader.expect(")")
    if engine.pointer is None:
        return engine._replace(address=where)
    return engine._replace(address=where, pointer=SmemPtr(engine.pointer.bits, where))


def described(reader: Any, start: int | None = None) -> Engine:  # noqa: ANN401 - Reader
    """Read an element type, a memory, and optional attributes: ``f16, smem, align<1024>, S<3,4,3>``."""
    start = reader.token.start if start is None else start
    element = reader.expect("word", "an element type").text
    reader.expect(",")
    memory = reader.expect("word", "a memory space").text.lower()
    swizzle, aligned = None, False
    while reader.accept(",") and reader.token.kind != '"':
        if reader.token.kind == "swizzle" and swizzle is None:
            swizzle = reader.swizzle()
        elif reader.token.text.lower() == "align" and not aligned:
            reader.advance()
            reader.expect("<")
            reader.integer()
            reader.expect(">")
            aligned = True
        else:
            raise reader.unexpected("'align<BYTES>' or a swizzle, each once")
    if reader.token.kind == '"' and reader.tokens[reader.index - 1].kind != ",":
        raise reader.unexpected("','")
    width = re.search(r"\d+", element)
    bits = int(width.group()) if width else None
    if swizzle is None or memory != "smem":
        return Engine(memory=memory, bits=bits)
    if bits is None:
        raise reader.error(start, f"the element type {element} names no width in bits")
    return Engine(swizzle, reader.build(start, SmemPtr, bits), memory=memory, bits=bits)


def address(reader: Any) -> Engine:  # noqa: ANN401 - Reader
    """Read the address of a tensor of the DSL's runtime: ``0x5648@gmem``."""
    token = reader.advance()
    memory = reader.expect("word", "a memory space").text.lower() if reader.accept("@") else ""
    return Engine(memory=memory, address=int(token.text, 16))


def descriptors(reader: Tokens) -> Engine:
    """Read an iterator over matrix descriptors, with any contents of its brackets: its layout counts 16-byte units."""
    token = reader.advance()
    if token.kind == "result":
        depth, end = 0, token.end
        for end in range(token.end, len(reader.text)):
            depth += {"(": 1, ")": -1}.get(reader.text[end], 0)
            if depth == 0:
                break
        else:
            raise reader.error(token.end, "this bracket is not closed")
        reader.skip_to(end + 1)
    return Engine(memory="descriptors")


def counted(reader: Any) -> Engine:  # noqa: ANN401 - Reader
    """Read the start of ``counting_iter(0)`` or ``ArithTuple(0,0)``: the first element."""
    counter = reader.advance().kind == "counter"
    start = reader.coordinate()
    return Engine(start=start[0] if counter and isinstance(start, tuple) and len(start) == 1 else start)
