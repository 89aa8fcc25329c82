"""Statements of sm_100 and later GPUs, and the targets for which ptxas 13.0 takes each.

    python -m tests.sim.ptx.sm100_statements

asks ptxas and writes `sm100_statements.txt`: on each line the targets, a bar, and a statement.
"""

import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

RECORD = Path(__file__).with_suffix(".txt")
TARGETS = "sm_90a sm_100 sm_100f sm_100a sm_103a sm_120a".split()
REGISTERS = """.reg .b8 %c<4>; .reg .b16 %h<4>; .reg .b32 %r<140>; .reg .b64 %d<8>; .reg .f32 %f<8>; .reg .pred %p<4>;
.reg .b128 %q<2>;"""
_SHAPES = {"32x32b": 1, "16x64b": 1, "16x128b": 2, "16x256b": 4, "16x32bx2": 1}


def module(statement, target):
    """Return a module of a target with a kernel of one statement."""
    head = f".version 8.8\n.target {target}\n.address_size 64\n"
    return f"{head}.visible .entry k() {{ {REGISTERS}\n{statement}\nret; }}\n"


def recorded():
    """Return (targets, statement) of each line of the record."""
    lines = RECORD.read_text().splitlines()
    return [
        (frozenset(targets.split()), statement) for targets, _, statement in (line.partition("| ") for line in lines)
    ]


def _vector(count):
    return "{" + ", ".join(f"%r{n}" for n in range(count)) + "}"


def _tensor_core():
    eight = _vector(8)
    for group in ("cta_group::1", "cta_group::2"):
        lanes = _vector(4) if group[-1] == "1" else eight
        yield f"tcgen05.alloc.{group}.sync.aligned.shared::cta.b32 [%r0], %r1;"
        yield f"tcgen05.alloc.{group}.sync.aligned.b32 [%d0], 64;"
        yield f"tcgen05.dealloc.{group}.sync.aligned.b32 %r0, 64;"
        yield f"tcgen05.relinquish_alloc_permit.{group}.sync.aligned;"
        for form in ("b64 [%d0]", "shared::cluster.b64 [%r0]", "shared::cluster.multicast::cluster.b64 [%r0], %h0"):
            yield f"tcgen05.commit.{group}.mbarrier::arrive::one.{form};"
        for shape in (
            "128x256b",
            "4x256b",
            "128x128b",
            "64x128b.warpx2::02_13",
            "64x128b",
            "32x128b.warpx4",
            "32x128b",
        ):
            yield f"tcgen05.cp.{group}.{shape} [%r0], %d0;"
            yield f"tcgen05.cp.{group}.{shape}.b8x16.b4x16_p64 [%r0], %d0;"
        yield f"tcgen05.shift.{group}.down [%r0];"
        for a in ("%d0", "[%r1]", "%r0"):
            for kind in ("f16", "tf32", "f8f6f4", "i8", "mxf4"):
                yield f"tcgen05.mma.{group}.kind::{kind} [%r0], {a}, %d1, %r2, %p0;"
        for more in (f"{lanes}, %p0", f"{lanes}, %p0, 3", "%p0, 3", f"{_vector(3)}, %p0", "1"):
            yield f"tcgen05.mma.{group}.kind::f16.collector::a::discard [%r0], %d0, %d1, %r2, {more};"
        for scaled in ("mxf4nvf4.block_scale.scale_vec::4X", "mxf4nvf4.block_scale.block16", "mxf8f6f4.block_scale"):
            yield f"tcgen05.mma.{group}.kind::{scaled} [%r0], %d0, %d1, %r2, [%r3], [%r4], %p0;"
            yield f"tcgen05.mma.{group}.kind::{scaled} [%r0], %d0, %d1, %r2, [%r3], [%r4], {lanes}, %p0;"
            yield f"tcgen05.mma.{group}.kind::{scaled} [%r0], %d0, %d1, %r2, [%r3], [%r4], %p0, %d2;"
        yield f"tcgen05.mma.{group}.kind::f16 [%r0], %d0, %d1, %r2, %p0, %d2;"
        yield f"tcgen05.mma.sp.{group}.kind::f16 [%r0], %d0, %d1, [%r5], %r2, {lanes}, %p0;"
        yield f"tcgen05.mma.sp.{group}.kind::f16 [%r0], %d0, %d1, [%r5], %r2, %p0;"
        for use in ("", ".collector::a::fill", ".collector::a::lastuse"):
            yield f"tcgen05.mma.{group}.kind::f16.ashift{use} [%r0], [%r1], %d1, %r2, %p0;"
        yield f"tcgen05.mma.{group}.kind::f16 [%d0], %d0, %d1, %r2, %p0;"
        yield f"tcgen05.mma.ws.{group}.kind::f16.collector::b0::fill [%r0], %d0, %d1, %r2, %p0, %d2;"
        yield f"tcgen05.mma.ws.{group}.kind::f16 [%r0], %d0, %d1, %r2, {lanes}, %p0;"
        yield f"tcgen05.mma.ws.sp.{group}.kind::f16 [%r0], %d0, %d1, [%r3], %r2, %p0;"
        load = "cp.async.bulk.tensor.2d.shared::cluster.global"
        copied = "mbarrier::complete_tx::bytes"
        yield f"{load}.tile.{copied}.{group} [%r0], [%d0, {{%r1, %r2}}], [%r3];"
        yield f"{load}.{copied}.multicast::cluster.{group}.L2::cache_hint [%r0], [%d0, {{%r1, %r2}}], [%r3], %h0, %d2;"
        yield f"{load}.tile::gather4.{copied}.{group} [%r0], [%d0, {{%r1, %r2, %r4, %r5, %r6}}], [%r3];"
    for name in ("wait::ld.sync.aligned", "wait::st.sync.aligned", "fence::before_thread_sync"):
        yield f"tcgen05.{name};"
    for shape, registers in _SHAPES.items():
        split = ", 4" if shape.endswith("x2") else ""
        for count in (1, 2, 8, 32, 64, 128):
            vector = _vector(min(count * registers, 128))
            for pack in ("", ".pack::16b"):
                yield f"tcgen05.ld.sync.aligned.{shape}.x{count}{pack}.b32 {vector}, [%r130]{split};"
                unpack = pack.replace(".", ".un")
                yield f"tcgen05.st.sync.aligned.{shape}.x{count}{unpack}.b32 [%r130+5]{split}, {vector};"
    for wrong in ("{%r0}, [%r1]", "{%f0, %f1}, [%r1]", "%r0, [%r1]", "{%r0, %r1}, [%d0]"):
        yield f"tcgen05.ld.sync.aligned.32x32b.x2.b32 {wrong};"
    yield "tcgen05.ld.sync.aligned.16x32bx2.x2.b32 {%r0,%r1}, [%r1], %r2;"
    for form in (
        "32x32b.x2.max.f32 {%r0, %r1}, %r2, [%r3]",
        "32x32b.x2.min.abs.NaN.f32 {%f0, %f1}, %f2, [%r3]",
        "32x32b.x2.max.u32 {%r0, %r1}, %r2, [%r3]",
        "32x32b.x2.s32.min {%r0, %r1}, %r2, [%r3]",
        "32x32b.x2.max.abs.s32 {%r0, %r1}, %r2, [%r3]",
        "32x32b.x1.max.f32 {%r0}, %r2, [%r3]",
        "32x32b.x2.max.f32 {%r0, %r1}, [%r3]",
        "32x32b.x4.max.f32 {%r0, %r1}, %r2, [%r3]",
        "16x64b.x2.max.f32 {%r0, %r1}, %r2, [%r3]",
        "16x32bx2.x2.max.f32 {%r0, %r1}, %r2, [%r3], 4",
        "16x32bx2.x2.u32.max {%r0, %r1}, %r2, [%r3], 4",
    ):
        yield f"tcgen05.ld.red.sync.aligned.{form};"


def _products_of_warps():
    """Products of sm_120."""
    d, a, b, d16 = "{%f0, %f1, %f2, %f3}", _vector(4), _vector(2), _vector(2)
    scales = "%r6, {0, %h1}, %r7, {%h0, 1}"
    dense, sparse = "mma.sync.aligned", "mma.sp::ordered_metadata.sync.aligned"
    for name, shapes, of_b, more in ((dense, (32, 64), b, ""), (sparse, (64, 128), a, ", %r5, 0")):
        narrow, packed = (f"{name}.m16n8k{k}.row.col" for k in shapes)
        for types in ("e2m1.e3m2", "e4m3.e2m3", "e5m2.e4m3"):
            yield f"{narrow}.kind::f8f6f4.f32.{types}.f32 {d}, {a}, {of_b}, {d}{more};"
            yield f"{narrow}.kind::f8f6f4.f16.{types}.f16 {d16}, {a}, {of_b}, {d16}{more};"
            yield f"{narrow}.kind::mxf8f6f4.block_scale.f32.{types}.f32.ue8m0 {d}, {a}, {of_b}, {d}{more}, {scales};"
        for form in (
            "kind::mxf8f6f4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0",
            "kind::mxf8f6f4.block_scale.f32.e2m1.e2m1.f32.ue4m3",
        ):
            yield f"{narrow}.{form} {d}, {a}, {of_b}, {d}{more}, {scales};"
        for form in (
            "kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0",
            "kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0",
            "kind::mxf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue8m0",
            "kind::mxf4nvf4.block_scale.f32.e2m1.e2m1.f32.ue4m3",
            "kind::mxf4nvf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0",
            "kind::mxf4nvf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue4m3",
            "kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3",
            "kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e3m2.f32.ue4m3",
        ):
            yield f"{packed}.{form} {d}, {a}, {of_b}, {d}{more}, {scales};"
    yield f"{dense}.kind::f8f6f4.m16n8k32.row.col.f32.e2m1.e2m1.f32 {d}, {a}, {b}, {d};"
    yield f"{dense}.m16n8k32.row.col.f32.e2m1.e2m1.f32 {d}, {a}, {b}, {d};"
    form = f"{dense}.m16n8k64.row.col.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0 {d}, {a}, {b}, {d}"
    for selectors in (
        "%r6, {0, 1}",
        "%r6, 0, 1, %r7, 0, 0",
        "%r6, {%r1, %r2}, %r7, {0, 0}",
        "{%r6}, {0, 1}, {%r7}, {0, 0}",
    ):
        yield f"{form}, {selectors};"


def _others():
    eight = _vector(8)
    for space in ("", ".shared::cta"):
        for every in ("", ".multicast::cluster::all"):
            form = f"async{space}.mbarrier::complete_tx::bytes{every}.b128"
            yield f"clusterlaunchcontrol.try_cancel.{form} [%{'r0' if space else 'd0'}], [%{'r1' if space else 'd1'}];"
    for form in (
        "is_canceled.pred.b128 %p0",
        "get_first_ctaid.v4.b32.b128 {%r0, %r1, %r2, _}",
        "get_first_ctaid::x.b32.b128 %r0",
    ):
        yield f"clusterlaunchcontrol.query_cancel.{form}, %q0;"
    for name in ("add", "sub", "mul"):
        for mode in ("", "rn.", "rm.", "rn.ftz.", "sat."):
            yield f"{name}.{mode}f32x2 %d0, %d1, %d2;"
    for form in ("fma.rn.f32x2", "fma.rn.ftz.f32x2", "fma.f32x2"):
        yield f"{form} %d0, %d1, %d2, %d3;"
    yield from ("neg.f32x2 %d0, %d1;", "max.f32x2 %d0, %d1, %d2;", "add.rn.f32x2 %f0, %f1, %f2;")
    for kind in ("f16", "bf16"):
        for form in ("add", "add.rn", "add.rn.sat", "sub.rz", "add.ftz", "mul.rn"):
            yield f"{form}.f32.{kind} %f0, %h0, %f1;"
        yield f"add.f32.{kind} %f0, %f2, %f1;"
        yield f"fma.rn.f32.{kind} %f0, %h0, %h1, %f1;"
        yield f"fma.rn.sat.f32.{kind} %f0, %h0, %h1, %f1;"
    for name in ("max", "min"):
        for form in ("f32", "NaN.f32", "ftz.NaN.abs.f32", "xorsign.abs.f32"):
            yield f"{name}.{form} %f0, %f1, %f2, %f3;"
        yield f"{name}.abs.f32 %f0, %f1, %f2;"
        yield f"{name}.s32 %r0, %r1, %r2, %r3;"
        yield f"{name}.f16 %h0, %h1, %h2, %h3;"
    for form in ("min", "max.abs", "max.NaN", "max.abs.NaN", "add"):
        yield f"redux.sync.{form}.f32 %f0, %f1, -1;"
    for kind, register in (("e2m1x2", "%c0"), ("e2m3x2", "%h0"), ("e3m2x2", "%h0")):
        for form in ("rn.satfinite", "rn.satfinite.relu", "rn"):
            yield f"cvt.{form}.{kind}.f32 {register}, %f0, %f1;"
        for form in (f"rn.f16x2.{kind}", f"rn.relu.f16x2.{kind}", f"rn.bf16x2.{kind}"):
            yield f"cvt.{form} %r0, {register};"
        for halves in ("f16x2", "bf16x2"):
            yield f"cvt.rn.satfinite.{kind}.{halves} {register}, %r0;"
    for mode in ("rz", "rp", "rn"):
        yield f"cvt.{mode}.ue8m0x2.f32 %h0, %f0, %f1;"
        yield f"cvt.{mode}.satfinite.ue8m0x2.bf16x2 %h0, %r0;"
    for form in (
        "f16x2.f32 %r0, %f0, %f1, %r1",
        "satfinite.f16x2.f32 %r0, %f0, %f1, %r1",
        "relu.satfinite.bf16x2.f32 %r0, %f0, %f1, %r1",
        "bf16x2.f32 %r0, %f0, %f1",
        "bf16.f32 %h0, %f0, %r1",
        "satfinite.e4m3x4.f32 %r0, {%f0, %f1, %f2, %f3}, %r1",
        "relu.satfinite.e3m2x4.f32 %r0, {%f0, %f1, %f2, %f3}, %r1",
        "satfinite.e2m1x4.f32 %h0, {%f0, %f1, %f2, %f3}, %r1",
        "satfinite.e2m1x4.f32 %r0, {%f0, %f1, %f2, %f3}, %r1",
        "e5m2x4.f32 %r0, {%f0, %f1, %f2, %f3}, %r1",
        "satfinite.e5m2x4.f32 %r0, {%f0, %f1}, %r1",
    ):
        yield f"cvt.rs.{form};"
    yield from ("cvt.rn.bf16x2.ue8m0x2 %r0, %h0;", "cvt.rn.f16x2.ue8m0x2 %r0, %h0;")
    for order in ("", "weak.", "volatile.", "relaxed.gpu."):
        yield f"ld.{order}global.v8.b32 {eight}, [%d0];"
        yield f"ld.{order}global.v4.b64 {{%d0, %d1, %d2, %d3}}, [%d4];"
        yield f"st.{order}global.v8.b32 [%d0], {eight};"
    for form in (
        "v8.b32",
        "shared.v8.b32",
        "global.L1::no_allocate.L2::evict_first.v8.b32",
        "global.nc.L2::256B.v8.b32",
    ):
        yield f"ld.{form} {eight}, [%d0];"
    for count in (1, 2):
        yield f"ldmatrix.sync.aligned.m16n16.x{count}.trans.shared.b8 {_vector(2 * count)}, [%r4];"
        yield f"stmatrix.sync.aligned.m16n8.x{count}.trans.shared.b8 [%r4], {_vector(count)};"
    yield "ldmatrix.sync.aligned.m16n16.x1.shared.b8 {%r0, %r1}, [%r4];"
    for source in ("b6x16_p32", "b4x16_p64"):
        for form in ("m8n16.x1", "m8n16.x4", "m16n16.x1.trans", "m16n16.x2.trans", "m8n16.x1.trans", "m16n16.x4.trans"):
            registers = int(form.split(".")[1][1:]) * (2 if form.startswith("m16") else 1)
            yield f"ldmatrix.sync.aligned.{form}.shared.b8x16.{source} {_vector(registers)}, [%r4];"
    yield "ldmatrix.sync.aligned.m8n16.x1.shared.b8 {%r0}, [%r4];"
    yield from _products_of_warps()
    yield from ("st.bulk.weak.shared::cta [%r0], %d0, 0;", "st.bulk [%d1], %d0, 0;")
    yield from ("wgmma.fence.sync.aligned;", "setmaxnreg.inc.sync.aligned.u32 64;", "elect.sync %r0|%p0, -1;")
    for form in (
        "bulk_group.cp_mask [%d0], [%r0], 16, %h0",
        "bulk_group.L2::cache_hint.cp_mask [%d0], [%r0], 16, %d1, %h0",
        "bulk_group.cp_mask [%d0], [%r0], 16",
        "bulk_group.cp_mask [%d0], [%r0], 16, %r1",
    ):
        yield f"cp.async.bulk.global.shared::cta.{form};"
    rows = "{%r1, %r2, %r4, %r5, %r6}"
    yield f"cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group [%d0, {rows}], [%r3];"
    gather = "cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes"
    yield f"{gather} [%r0], [%d0, {rows}], [%r3];"
    for hint, policy in (("", ""), (".L2::cache_hint", ", %d1")):
        yield f"cp.async.bulk.prefetch.tensor.2d.L2.global.tile::gather4{hint} [%d0, {rows}]{policy};"
        reduce = "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile::scatter4.bulk_group"
        yield f"{reduce}{hint} [%d0, {rows}], [%r3]{policy};"
    for columns in (0, 16, 32, 48, 64, 512, 1024):
        yield f"tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r0], {columns};"
    for columns in (16, 32, 48, 96, 512):
        yield f"tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r0, {columns};"
    for mask in ("%h0", "%r1", "3"):
        commit = "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64"
        yield f"{commit} [%r0], {mask};"
    for atomicity in (0, 3, 4):
        yield f"tensormap.replace.tile.swizzle_atomicity.global.b1024.b32 [%d0], {atomicity};"
    yield "cp.async.bulk.prefetch.tensor.2d.L2.global.tile::gather4 [%d0, {%r1, %r2}];"
    yield "cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.tile::scatter4.bulk_group [%d0, {rows}], [%r3];"
    for form in ("rn.satfinite", "rz.satfinite", "rn.relu.satfinite", "rz.satfinite.relu", "rna.satfinite", "rn.relu"):
        yield f"cvt.{form}.tf32.f32 %r0, %f0;"
    for order in ("", "weak.", "relaxed.gpu.", "volatile."):
        for kept in ("L2::evict_last", "L1::no_allocate.L2::evict_last", "L1::evict_last.L2::evict_first"):
            yield f"ld.{order}global.{kept}.v4.b64 {{%d0, %d1, %d2, %d3}}, [%d4];"
            yield f"ld.{order}global.{kept}.v8.b32 {_vector(8)}, [%d4];"
            yield f"st.{order}global.{kept}.v4.b64 [%d4], {{%d0, %d1, %d2, %d3}};"
    yield "ld.global.nc.L1::no_allocate.L2::evict_last.v4.f64 {%d0, %d1, %d2, %d3}, [%d4];"
    yield "ld.global.L2::evict_last.v2.b64 {%d0, %d1}, [%d4];"
    yield "ld.global.L2::evict_last.v4.b32 {%r0, %r1, %r2, %r3}, [%d4];"


def _takes(statement, target):
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
        file.write(module(statement, target))
        file.flush()
        command = ["ptxas", f"-arch={target}", file.name, "-o", "/dev/null"]
        return subprocess.run(command, capture_output=True).returncode == 0


def main():
    """Ask ptxas, and write the record."""
    statements = list(dict.fromkeys([*_tensor_core(), *_others()]))
    with ThreadPoolExecutor(2) as pool:
        lines = [
            f"{' '.join(target for target, taken in zip(TARGETS, row, strict=True) if taken)}| {statement}"
            for statement in statements
            for row in [list(pool.map(lambda target, s=statement: _takes(s, target), TARGETS))]
        ]
    RECORD.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
