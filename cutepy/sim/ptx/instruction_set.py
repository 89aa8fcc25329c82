"""The instruction set of PTX: one row an instruction, and `traits`, which decodes an opcode by its row.

A row names the class of an instruction, what it does to memory and to other threads, and its operands. Its meaning, as
an expression, is in `sim.semantics`.

References
----------
PTX ISA, "Instruction Set": the syntax line of each instruction; "State Spaces"; "Memory Consistency Model".
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from cutepy.layouts.sm90.arch import WARP_THREADS, WARPGROUP_THREADS

_TABLE = """
abs bfind brev clz cnot cos lg2 neg not popc rcp rsqrt sin sqrt tanh: arithmetic; result value
add addc and bmsk copysign div max min mul mul24 or rem shl shr sub subc szext xor: arithmetic; result value*2
bfe dp2a dp4a fma fns mad mad24 madc sad shf: arithmetic; result value*3
bfi: arithmetic; result value*4
ex2: arithmetic; result value
lop3: arithmetic; result value*4 value@and/or
cvt: conversion; result value value?
cvt.pack: conversion; result value*2 value@b32
cvta: conversion; result value
set setp: comparison; result value*2 value@and/or/xor
selp slct: comparison; result value*3
testp: comparison; result value
mov getctarank isspacep: move; result value
mapa: move; result value*2
prmt: move; result value*3
createpolicy: memory; result value?
createpolicy.range: memory; result address value*2
alloca: arithmetic, private; result value value?
stacksave: arithmetic, private; result
stackrestore: arithmetic, private; value
bra: control, private; target
exit ret: control, private;
nanosleep pmevent: control, private; value

ld: memory, loads, access; result address policy@L2::cache_hint
ldu: memory, loads, access; result address
st: memory, stores, access; address value policy@L2::cache_hint
st.async: memory, stores, orders, signals; address value address
st.bulk: memory, stores, orders, signals; address value*2
atom: atomic, updates, access, orders; result address value value@cas policy@L2::cache_hint
red: atomic, updates, access, orders; address value policy@L2::cache_hint
red.async: atomic, updates, orders, signals; address value address
multimem.ld_reduce: memory, loads, global; result address
multimem.st: memory, stores, global; address value
multimem.red: memory, updates, global; address value
prefetch prefetchu: memory, access; address
prefetch.tensormap prefetch.const.tensormap prefetch.param.tensormap: memory, other; address
applypriority discard: memory, access; address value
ldmatrix: matrix, loads, access, shared; result address
stmatrix: matrix, stores, access, shared; address value
movmatrix: matrix, exchanges; result value
mma: matrix, exchanges; result value*3
mma.sp mma.sp::ordered_metadata: matrix, exchanges; result value*5
wmma.load: matrix, loads, access; result address stride?
wmma.store: matrix, stores, access; address value stride?
wmma.mma: matrix, exchanges; result value*3

activemask: warp, exchanges; result
elect: warp, exchanges, waits; result lanes
match redux: warp, exchanges, waits; result value lanes
shfl: warp, exchanges, waits; result value lanes*2 lanes@sync
vote: warp, exchanges, waits; result value lanes@sync

bar barrier: barrier, waits, orders, signals; barrier barrier?
bar.arrive bar.cta.arrive barrier.arrive barrier.cta.arrive: barrier, waits, orders, signals; barrier*2
bar.red bar.cta.red barrier.red barrier.cta.red: barrier, waits, orders, signals, updates, votes;
    result barrier barrier? value
bar.warp: barrier, waits, orders, signals, exchanges; barrier
barrier.cluster: barrier, waits, orders, signals;
barrier.cluster.arrive: barrier, orders, signals;
mbarrier: barrier, orders, signals; result? address barrier? barrier?
mbarrier.init: barrier, orders, signals; address barrier
mbarrier.inval: barrier, orders, signals; address
mbarrier.arrive mbarrier.arrive_drop: barrier, orders, signals; result? address barrier?
mbarrier.arrive.expect_tx mbarrier.arrive_drop.expect_tx: barrier, orders, signals; result? address barrier
mbarrier.arrive.noComplete mbarrier.arrive_drop.noComplete: barrier, orders, signals; result? address barrier
mbarrier.expect_tx mbarrier.complete_tx: barrier, orders, signals; address barrier
mbarrier.test_wait mbarrier.try_wait: barrier, tries, waits, orders, signals; result address barrier barrier?
mbarrier.pending_count: barrier, orders, signals; result value
fence: barrier, orders; address? bytes?
membar griddepcontrol: barrier, orders;

cp.async.ca cp.async.cg: async_copy, copies, orders, signals; address address bytes bytes? policy@L2::cache_hint
cp.async.commit_group: async_copy, orders;
cp.async.wait_all: async_copy, orders, signals;
cp.async.wait_group cp.async.bulk.wait_group: async_copy, orders, signals; barrier
cp.async.mbarrier: async_copy, orders, signals; address
cp.async.bulk: async_copy, copies, orders, signals;
    address address bytes address@mbarrier::complete_tx::bytes mask@multicast::cluster policy@L2::cache_hint
cp.async.bulk.commit_group: async_copy, orders;
cp.async.bulk.prefetch: async_copy, orders; address bytes policy@L2::cache_hint
cp.async.bulk.prefetch.tensor: async_copy, orders; address mask@im2col policy@L2::cache_hint
cp.async.bulk.tensor: async_copy, copies, orders, signals;
    address address address@mbarrier::complete_tx::bytes mask@im2col mask@multicast::cluster policy@L2::cache_hint
cp.reduce.async.bulk: async_copy, reduces, orders, signals;
    address address bytes address@mbarrier::complete_tx::bytes policy@L2::cache_hint
cp.reduce.async.bulk.tensor: async_copy, reduces, orders, signals; address address policy@L2::cache_hint
tensormap.cp_fenceproxy: async_copy, copies, orders, signals; address address bytes
tensormap.replace: async_copy, stores, orders, signals; address bytes
tensormap.replace.tile.global_address: async_copy, stores, orders, signals; address elsewhere
tensormap.replace.tile.box_dim tensormap.replace.tile.global_dim tensormap.replace.tile.global_stride
    tensormap.replace.tile.element_stride: async_copy, stores, orders, signals; address bytes*2

wgmma.mma_async: wgmma, loads, shared, other; result descriptor*2 alike value? value? value? value?
wgmma.mma_async.sp: wgmma, loads, shared, other; result descriptor*2 value*2 alike value? value? value? value?
wgmma.fence: wgmma, other;
wgmma.commit_group: wgmma, orders;
wgmma.wait_group: wgmma, orders, signals; barrier

setmaxnreg: control, waits, signals; barrier
brkpt trap: control, other;
brx: control, other; branch branch
call: control, other; branch value? value? value?
%beyond: control, other; branch value
"""
"""Rows: the beginnings of opcodes, a colon, the class and the effects of the instruction, a semicolon, its operands.

Classes are those of `CLASSES`; "arithmetic" is "float" or "integer" by the type of the opcode. Effects are those of
`EFFECTS`; an instruction without effects computes results from its operands.

Operands: ``result`` and ``address`` are what they say, ``policy`` is a cache policy, ``target`` a label; the others
name what a value is for. ``value*2`` stands for two, ``value?`` for one that may be missing, ``value@and/or`` for one
that is there if, and only if, the opcode has one of these modifiers.
"""

EFFECTS = {
    "loads": "reads memory",
    "stores": "writes memory",
    "shared": "accesses shared memory, where its opcode names no state space",
    "global": "accesses global memory, where its opcode names no state space",
    "updates": "reads and writes the same memory",
    "copies": "reads the last memory that the opcode names, and writes the first",
    "reduces": "copies, and reads what it replaces",
    "access": "accesses memory, and does nothing else",
    "votes": "exchanges predicates at the barrier of a CTA",
    "exchanges": "gives a lane what other lanes of its warp hold",
    "waits": "may wait for other threads",
    "tries": "tests the phase of an mbarrier",
    "orders": "orders what its thread does with what others do, or issues what others wait for",
    "signals": "changes or reads barriers, pending copies or registers of the warpgroup",
    "private": "has an effect that no other thread sees",
    "other": "has another effect",
}
"""Effects of instructions."""

CLASSES = (
    *("memory", "atomic", "async_copy", "matrix", "wgmma", "barrier", "warp", "control", "conversion"),
    *("comparison", "move", "float", "integer"),
)
"""Classes of instructions, for counts."""
SPACES = ("shared", "global", "local", "param", "const")
COMMUTATIVE = frozenset("add and or xor min max".split())
"""Reductions of integers whose order does not matter."""
REDUCTIONS = COMMUTATIVE | frozenset("exch cas inc dec".split())

_FLOAT_TYPES = ("f16", "f32", "f64", "bf16", "f16x2", "bf16x2")
_OF_WARPGROUPS = ("wgmma", "setmaxnreg")
_WORD = re.compile(r"(?P<name>\w+)(?:\*(?P<count>\d))?(?P<optional>\?)?(?:@(?P<modifiers>\S+))?")


class Form(NamedTuple):
    """Operands of an opcode.

    Attributes
    ----------
    words : tuple of str
        What each is.
    optional : int
        How many of them may be missing, beside the result.
    may_lack_result : bool
        Whether the result may be missing.
    """

    words: tuple[str, ...]
    optional: int
    may_lack_result: bool = False


class Row(NamedTuple):
    """Row of the table: the class, the effects and the operands of an instruction."""

    kind: str
    effects: frozenset[str]
    operands: str


class Traits(NamedTuple):
    """Traits of an instruction, as its opcode says them.

    Attributes
    ----------
    kind : str
        The class, one of `CLASSES`.
    effects : frozenset of str
        What it does beside results; empty if the instruction is not known.
    form : Form or None
        Its operands; None if the instruction is not known.
    loads, stores : tuple of str
        The state spaces that it reads and writes; "generic" is any of them, "barrier" where predicates meet.
    threads : int
        How many threads must execute it together: 1, a warp of 32, or a warpgroup of 128. The modifier ``.aligned``
        says so, which ``bar`` has without its name. Under a condition all must evaluate it alike; otherwise what the
        instruction does is undefined.
    """

    kind: str
    effects: frozenset[str]
    form: Form | None
    loads: tuple[str, ...]
    stores: tuple[str, ...]
    threads: int

    @property
    def is_known(self) -> bool:
        """True if a row describes the instruction."""
        return self.form is not None

    @property
    def is_plain(self) -> bool:
        """True if all it does is to compute results, or to have effects that no other thread sees."""
        return self.form is not None and self.effects <= _PRIVATE

    @property
    def is_access(self) -> bool:
        """True if all it does is to access memory."""
        return "access" in self.effects

    @property
    def exchanges(self) -> bool:
        """True if it gives a lane what other lanes of its warp hold."""
        return "exchanges" in self.effects

    @property
    def waits(self) -> bool:
        """True if it may wait for other threads."""
        return "waits" in self.effects

    @property
    def tries(self) -> bool:
        """True if it tests the phase of an mbarrier."""
        return "tries" in self.effects

    @property
    def orders(self) -> bool:
        """True if it orders what its thread does with what others do, or issues what others wait for."""
        return "orders" in self.effects

    @property
    def signals(self) -> bool:
        """True if it changes or reads barriers, pending copies or registers of the warpgroup."""
        return "signals" in self.effects


_PRIVATE = frozenset(("private",))


def _read(table: str) -> dict[str, Row]:
    found: dict[str, Row] = {}
    for entry in re.split(r"\n+(?! )", table.strip()):
        names, _, told = entry.partition(": ")
        traits, _, operands = told.partition(";")
        kind, *effects = traits.split(", ")
        found |= dict.fromkeys(names.split(), Row(kind, frozenset(effects), operands.strip()))
    return found


ROWS = _read(_TABLE)
"""The row of each beginning of an opcode; the longest one counts."""


def row_of(opcode: str) -> Row | None:
    """Return the row of an opcode; None of one that has none."""
    parts = opcode.split(".")
    return next((ROWS[n] for n in (".".join(parts[:k]) for k in range(len(parts), 0, -1)) if n in ROWS), None)


@lru_cache(maxsize=1 << 12)
def traits(opcode: str) -> Traits:
    """Decode an opcode.

    Of an instruction that is not known, any memory is taken to be read and written.

    Examples
    --------
    >>> traits("setp.lt.and.u32").form.words, traits("ld.global.L2::cache_hint.u32").form.words
    (('result', 'value', 'value', 'value'), ('result', 'address', 'policy'))
    >>> traits("cp.async.ca.shared.global").form
    Form(words=('address', 'address', 'bytes', 'bytes'), optional=1, may_lack_result=False)
    >>> [traits(opcode).kind for opcode in ("fma.rn.f32", "add.s32", "ld.global.f32", "bra.uni")]
    ['float', 'integer', 'memory', 'control']
    >>> copy = traits("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes")
    >>> copy.loads, copy.stores
    (('global',), ('shared',))
    >>> opcodes = "bar.sync", "barrier.sync", "bar.warp.sync", "mma.sync.aligned", "setmaxnreg.inc.sync.aligned"
    >>> [traits(opcode).threads for opcode in opcodes]
    [32, 1, 1, 32, 128]
    """
    parts = opcode.split(".")
    row = row_of(opcode)
    kind = "arithmetic" if row is None else row.kind
    if kind == "arithmetic":
        kind = "float" if parts[-1] in _FLOAT_TYPES else "integer"
    spaces = [space for space in (part.partition("::")[0] for part in parts[1:]) if space in SPACES]
    if row is None:
        spaces = spaces[:1] or ["generic"]
        return Traits(kind, frozenset(), None, (*spaces,), (*spaces,), _threads(parts))
    effects = row.effects
    spaces = spaces or [next((space for space in ("shared", "global") if space in effects), "generic")]
    into, taken = spaces[0], spaces[-1] if effects & {"copies", "reduces"} else spaces[0]
    loads: tuple[str, ...] = ()
    stores: tuple[str, ...] = ()
    if "votes" in effects:
        loads = stores = ("barrier",)
    else:
        if effects & {"loads", "updates", "copies", "reduces"}:
            loads = (taken, into) if "reduces" in effects else (taken,)
        if effects & {"stores", "updates", "copies", "reduces"}:
            stores = (into,)
    return Traits(kind, effects, _form(row.operands, parts), loads, stores, _threads(parts))


def _threads(parts: list[str]) -> int:
    if "aligned" not in parts and (parts[0] != "bar" or "warp" in parts):
        return 1
    return WARPGROUP_THREADS if parts[0] in _OF_WARPGROUPS else WARP_THREADS


def _form(operands: str, parts: list[str]) -> Form:
    words: list[str] = []
    optional = 0
    for match in map(_WORD.fullmatch, operands.split()):
        assert match is not None
        if match["modifiers"] is None or not {*match["modifiers"].split("/")}.isdisjoint(parts):
            words += [match["name"]] * int(match["count"] or 1)
            optional += match["optional"] is not None and match["name"] != "result"
    return Form(tuple(words), optional, operands.startswith("result?"))
