"""printf and assert in kernels: vprintf with a format and a buffer of arguments, and __assertfail.

References
----------
CUDA C++ Programming Guide, "Formatted Output". PTX Writer's Guide to Interoperability, "System Calls".
"""

from __future__ import annotations

import re

import numpy as np

from cutepy.sim.errors import MemoryAccessError, TrapError
from cutepy.sim.machine.activity import Activity
from cutepy.sim.machine.group import Group
from cutepy.sim.machine.lanes import Array
from cutepy.sim.machine.memory import Memory
from cutepy.sim.ptx.model import Instruction

_CONVERSION = re.compile(
    r"%(?P<flags>[-+ #0]*)(?P<width>\d*)(?P<precision>(?:\.\d+)?)(?P<length>hh|h|ll|l|z|j|t)?(?P<type>[a-zA-Z%])"
)
_FLOATS, _LONG = "aAeEfFgG", ("l", "ll", "z", "j", "t")


class Printing:
    """Output of kernels in the order of the schedule; within one instruction, by CTA and thread."""

    def __init__(self, activity: Activity, memory: Memory) -> None:
        self._activity = activity
        self._memory = memory

    def write(self, g: Group, i: Instruction, text: Array, arguments: Array) -> Array:
        """Print once for each lane, and return the number of arguments."""
        shape = (g.ctas.count, g.threads.count)
        address = int(text.flat[0])
        format_text = self._string(g, i, address)
        columns, offset = [], 0
        pieces = list(_CONVERSION.finditer(format_text))
        for piece in pieces:
            if piece["type"] == "%":
                continue
            wide = piece["type"] in _FLOATS or piece["type"] in "ps" or piece["length"] in _LONG
            kind = np.dtype("f8" if piece["type"] in _FLOATS else "i8" if wide else "i4")
            offset = -(-offset // kind.itemsize) * kind.itemsize
            value = self._memory.load(g, i, "generic", arguments + np.uint64(offset), kind, 1)
            columns.append(np.broadcast_to(value, shape))
            offset += kind.itemsize
        for row in range(shape[0]):
            for column in range(shape[1]):
                values = iter([c[row, column] for c in columns])
                self._activity.printed.append(_CONVERSION.sub(lambda m, v=values: self._one(g, i, m, v), format_text))  # type: ignore[misc]

        return np.array([[len(columns)]], np.uint32)

    def assert_failed(
        self, g: Group, i: Instruction, message: Array, file: Array, line: Array, function: Array
    ) -> None:
        """Stop the launch, as a failed assertion does."""
        what, where, name = (self._string(g, i, int(x.flat[0])) for x in (message, file, function))
        raise TrapError(f"{where}:{int(line.flat[0])}: {name}: assertion `{what}` failed", i, g.describe())

    def _one(self, g: Group, i: Instruction, piece: re.Match[str], values: object) -> str:
        if piece["type"] == "%":
            return "%"
        value = next(values)  # type: ignore[call-overload]
        kind = piece["type"]
        if kind == "s":
            return f"%{piece['flags']}{piece['width']}{piece['precision']}s" % self._string(g, i, int(value))
        if kind == "p":
            return hex(int(value) & (1 << 64) - 1)
        if kind in _FLOATS:
            number: object = float(value)
        elif kind in "uxXo":
            number = int(value) & (1 << 8 * value.dtype.itemsize) - 1
            kind = "d" if kind == "u" else kind
        else:
            number = int(value)
        return f"%{piece['flags']}{piece['width']}{piece['precision']}{kind}" % number

    def _string(self, g: Group, i: Instruction, address: int) -> str:
        region = self._memory.known.find(address, address + 1)
        if region is None:
            raise MemoryAccessError(f"no string can be at {address:#x}", i, g.describe())
        data = region.bytes[address - region.base :].tobytes()
        return data[: data.index(0)].decode(errors="replace")
