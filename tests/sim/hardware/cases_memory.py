"""Memory: subnormals and NaNs in atomics and reductions, what TMA puts outside of a tensor, threads that have ended."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from tests.sim.hardware.cases_arithmetic import SPECIAL_32, specials_16
from tests.sim.hardware.corpus import Case
from tests.sim.opcode_runner import launch
from tests.sim.test_opcodes_tma import (
    LOADS,
    START,
    adopted,
    aligned,
    dump,
    fill,
    load_body,
    set_coordinates,
    store_body,
    tensor_map,
)

_TIES_32 = np.array([0x3F801000, 0x3F803000, 0xBF801000, 0xBF803000, 0x1000, 0x3000], np.uint32)
"""Halfway between two numbers of tf32."""
_REGISTER = {"f32": "%f", "f64": "%fd", "f16": "%rs", "bf16": "%rs", "f16x2": "%r", "bf16x2": "%r"}


def _pairs_of(kind: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return pairs of special values of a float type, as bits: enough for whole warps."""
    if kind == "f32":
        values = SPECIAL_32
    elif kind == "f64":
        numbers = [0.0, -0.0, 5e-324, -5e-324, 2.2e-308, 1.0, -1.0, np.inf, -np.inf, np.nan, 1.5, 1.7e308]
        values = np.array(numbers).view(np.uint64)
    else:
        values = specials_16(kind.removesuffix("x2"))
    a, b = np.repeat(values, len(values)), np.tile(values, len(values))
    length = -(-len(a) // 128) * 128
    return np.resize(a, length), np.resize(b, length)


def _atomic(spelling: str) -> None:
    """Combine special values in memory, each lane at an address of its own; what `atom` returns is written too."""
    instruction, space, *_, kind = spelling.split(".")
    memory, added = (x.copy() for x in _pairs_of(kind))
    size = 4 if kind.endswith("x2") else memory.itemsize
    count, name = memory.nbytes // size, _REGISTER[kind]
    old = np.zeros(memory.nbytes, np.uint8)
    before = f"""mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mad.lo.u32 %r4, %r2, %r3, %r1;
    ld.param.u64 %rd1, [p0]; ld.param.u64 %rd2, [p1]; ld.param.u64 %rd3, [p2];
    mad.wide.u32 %rd1, %r4, {size}, %rd1; mad.wide.u32 %rd2, %r4, {size}, %rd2; mad.wide.u32 %rd3, %r4, {size}, %rd3;
    ld.global.b{8 * size} {name}9, [%rd2]; mov.u32 %r6, smem; mad.lo.u32 %r6, %r1, {size}, %r6;
    ld.global.b{8 * size} {name}8, [%rd1]; st.shared.b{8 * size} [%r6], {name}8;"""
    address = "%r6" if space == "shared" else "%rd1"
    result = f"{name}3, " if instruction == "atom" else ""
    after = f"st.global.b{8 * size} [%rd3], {name}3;" if result else ""
    if space == "shared":
        after += f"ld.shared.b{8 * size} {name}9, [%r6]; st.global.b{8 * size} [%rd1], {name}9;"
    launch(
        f"{spelling} {result}[{address}], {name}9;",
        memory.view("u1"),
        added.view("u1"),
        old,
        grid=count // 32,
        before=before,
        after=after,
        smem_bytes=32 * size,
    )


def _bulk_reduction(spelling: str) -> None:
    """Reduce special values from shared memory into global memory, by one bulk copy."""
    kind = spelling.split(".")[-1]
    memory, added = (x.copy() for x in _pairs_of(kind))
    size = memory.nbytes
    before = f"""mov.u32 %r10, smem; ld.param.u64 %rd1, [p0]; ld.param.u64 %rd2, [p1]; mov.u32 %r1, %tid.x;
    mov.u32 %r3, %r1; setp.eq.u32 %p1, %r1, 0;
    FILL: mad.lo.u32 %r2, %r3, 4, %r10; mad.wide.u32 %rd3, %r3, 4, %rd2; ld.global.b32 %r4, [%rd3];
    st.shared.b32 [%r2], %r4; add.u32 %r3, %r3, 32; setp.lt.u32 %p2, %r3, {size // 4}; @%p2 bra FILL;
    fence.proxy.async.shared::cta; bar.sync 0;"""
    body = f"""@%p1 cp.reduce.async.bulk.global.shared::cta.bulk_group.{spelling} [%rd1], [%r10], {size};
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;"""
    launch(body, memory.view("u1"), added.view("u1"), before=before, smem_bytes=size)


def _tensor_reduction(spelling: str) -> None:
    """The same by a tensor copy of whole rows."""
    operation, kind = spelling.split(".")
    values, added = _pairs_of(kind)
    columns = 64 // values.itemsize
    rows = min(len(values) // columns, 256)
    target = aligned((rows, columns), f"u{values.itemsize}")
    target[...] = values[: rows * columns].reshape(rows, columns)
    data = added[: rows * columns].copy()
    words = data.nbytes // 4
    launch(
        store_body(f"cp.reduce.async.bulk.tensor.2d.global.shared::cta.{operation}.tile.bulk_group", (0, 0)),
        tensor_map(target, (columns, rows), dtype=kind),
        data,
        before=START + set_coordinates((0, 0)) + fill(words),
        smem_bytes=1024 + 4 * words,
        run=adopted(target),
    )


def _repeated_tensor_reduction(kind: str) -> None:
    """Eight lanes of each of four CTAs add one box to one place: exact sums, in whatever order."""
    box = (16, 4)
    target = aligned((10, 32), kind, 3)
    data = np.random.default_rng(4).integers(1, 30, box[::-1]).astype(kind)
    words = data.nbytes // 4
    body = store_body("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group", (8, 2))
    launch(
        body,
        tensor_map(target, box),
        data,
        grid=4,
        before=START + set_coordinates((8, 2)) + fill(words) + "setp.lt.u32 %p1, %r1, 8;",
        smem_bytes=4096,
        run=adopted(target),
    )


def _fill_outside(dtype: str, mode: str) -> None:
    """Load boxes that lie partly outside of a tensor whose outside reads as NaN, or as zeros."""
    storage = {"f16": "u2", "bf16": "u2", "f64": "u8"}.get(dtype, "u4")
    array = aligned((8, 8), storage, 1)
    box, at = (16, 4), (-8, 6)
    size = int(np.prod(box)) * array.itemsize
    out = np.zeros(size // 4, np.uint32)
    launch(
        load_body(f"cp.async.bulk.tensor.2d.{LOADS[0]}", at, size),
        tensor_map(array, box, dtype=dtype, oob_fill=mode),
        out,
        before=START + set_coordinates(at),
        after=dump(len(out)),
        smem_bytes=4096,
        run=adopted(array),
    )


def _rounded_load(dtype: str, special: np.ndarray[Any, Any] = SPECIAL_32) -> None:
    """Load special values as a type that TMA may round or flush."""
    array = aligned((4, 16), "u4", 1)
    array[...] = np.resize(special, array.shape)
    size = 4 * array.size
    out = np.zeros(array.size, np.uint32)
    launch(
        load_body(f"cp.async.bulk.tensor.2d.{LOADS[0]}", (0, 0), size),
        tensor_map(array, (16, 4), dtype=dtype),
        out,
        before=START + set_coordinates((0, 0)),
        after=dump(len(out)),
        smem_bytes=4096,
        run=adopted(array),
    )


def _rounded_store(dtype: str) -> None:
    """Store special values as a type that TMA may round or flush."""
    target = aligned((4, 16), "u4", 1)
    data = np.resize(np.concatenate([SPECIAL_32, _TIES_32]), 64)
    launch(
        store_body("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group", (0, 0)),
        tensor_map(target, (16, 4), dtype=dtype),
        data,
        before=START + set_coordinates((0, 0)) + fill(64),
        smem_bytes=4096,
        run=adopted(target),
    )


_STORE = """ld.param.u64 %rd62, [p0]; mov.u32 %r390, %tid.x; mad.wide.u32 %rd62, %r390, 4, %rd62;
st.global.b32 [%rd62], %r0;"""


def _ended_threads(reduction: str) -> None:
    """One warp ends, and half of another, before the rest meet at a barrier that reduces."""
    out = np.full(128, 99, np.uint32)
    which = {"popc": "popc.u32 %r0, 0, %p1;", "and": "and.pred %p2, 0, %p1;", "or": "or.pred %p2, 0, %p1;"}[reduction]
    body = f"""mov.u32 %r1, %tid.x;
    mov.u32 %r0, 77;
    setp.ge.u32 %p3, %r1, 96;
    @%p3 exit;
    setp.ge.u32 %p4, %r1, 80;
    @%p4 exit;
    setp.lt.u32 %p1, %r1, {200 if reduction != "or" else 0};
    barrier.red.{which}"""
    after = "" if reduction == "popc" else "selp.b32 %r0, 1, 0, %p2;"
    launch(body, out, block=128, after=after + _STORE)


ATOMICS = [f"{i}.{s}.add.{t}" for i in ("atom", "red") for s in ("global", "shared") for t in ("f32", "f64")]
ATOMICS += [f"atom.{s}.add.noftz.{t}" for s in ("global", "shared") for t in ("f16", "bf16", "f16x2", "bf16x2")]
ATOMICS += [f"red.global.add.noftz.{t}" for t in ("f16x2", "bf16x2")]
BULK = ["add.f32", "add.f64", "add.noftz.f16", "add.noftz.bf16", "min.f16", "max.f16", "min.bf16", "max.bf16"]
TENSOR = ["add.f32", "add.f16", "add.bf16", "min.f16", "max.f16", "min.bf16", "max.bf16"]


def cases() -> list[Case]:
    """Return the cases of this module."""
    found = [Case(f"atomic.{s}", partial(_atomic, s)) for s in ATOMICS]
    found += [Case(f"bulk_reduction.{s}", partial(_bulk_reduction, s)) for s in BULK]
    found += [Case(f"tensor_reduction.{s}", partial(_tensor_reduction, s)) for s in TENSOR]
    kinds = ("u4", "f4", "f2")
    found += [Case(f"repeated_tensor_reduction.{k}", partial(_repeated_tensor_reduction, k)) for k in kinds]
    found += [
        Case(f"tma_outside.{mode}.{t}", partial(_fill_outside, t, mode))
        for t in ("f16", "bf16", "f32", "f64", "tf32")
        for mode in ("nan", "zero")
    ]
    found += [Case(f"tma_rounding.{t}", partial(_rounded_load, t)) for t in ("f32", "f32.ftz", "tf32", "tf32.ftz")]
    found += [Case(f"tma_rounding.ties.{t}", partial(_rounded_load, t, _TIES_32)) for t in ("tf32", "tf32.ftz")]
    found += [Case(f"tma_rounding.store.{t}", partial(_rounded_store, t)) for t in ("f32", "tf32", "tf32.ftz")]
    found += [Case(f"ended_threads.{r}", partial(_ended_threads, r)) for r in ("popc", "and", "or")]
    return found
