"""wmma, mma and mma.sp of every shape and type, against numpy on matrices that the ISA's rules take apart."""

import itertools

import numpy as np
import pytest
import torch

from cutepy import load_ptx

_HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n"
_TYPES = {"f16": np.float16, "tf32": np.float32, "f32": np.float32, "f64": np.float64}
_TYPES |= {"s8": np.int8, "u8": np.uint8, "s32": np.int32}
_TORCH = {"bf16": torch.bfloat16, "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
_BITS = {"s4": 4, "u4": 4, "b1": 1, "bf16": 16, "e4m3": 8, "e5m2": 8}
_BITS |= {name: 8 * np.dtype(kind).itemsize for name, kind in _TYPES.items()}
_RANGES = {"s4": (-8, 8), "u4": (0, 16), "b1": (0, 2), "s8": (-128, 128), "u8": (0, 256)}


def numbers(rng, kind, shape):
    """Small numbers that the type has, whose products are summed exactly."""
    return rng.integers(*_RANGES.get(kind, (-4, 5)), size=shape)


def to_bits(values, kind):
    """The bits of numbers, as integers."""
    if kind in ("s4", "u4", "b1"):
        return (values % (1 << _BITS[kind])).astype(np.uint64)
    if kind in _TORCH:
        whole = torch.from_numpy(values.astype(np.float32)).to(_TORCH[kind])
        return whole.view(torch.uint8 if _BITS[kind] == 8 else torch.uint16).numpy().astype(np.uint64)
    return values.astype(_TYPES[kind]).view(f"u{_BITS[kind] // 8}").astype(np.uint64)


def in_memory(values, kind):
    """A matrix, row after row."""
    bits = to_bits(values, kind).reshape(-1)
    width = _BITS[kind]
    if width >= 8:
        return bits.astype(f"u{width // 8}")
    each = 8 // width
    return (bits.reshape(-1, each) << (np.arange(each, dtype=np.uint64) * np.uint64(width))).sum(1).astype(np.uint8)


def registers(bits, width):
    """The 32-bit registers, or floats of 64 bits, of each lane's elements: the first in the lowest bits."""
    if width == 64:
        return bits.astype(np.uint64)
    each = 32 // width
    shifts = np.arange(each, dtype=np.uint64) * np.uint64(width)
    return (bits.reshape(32, -1, each) << shifts).sum(2).astype(np.uint32)


_WMMA = [
    *((s, "f16", c, d) for s in ("m16n16k16", "m8n32k16", "m32n8k16") for c in ("f16", "f32") for d in ("f16", "f32")),
    *((s, kind, "f32", "f32") for s in ("m16n16k16", "m8n32k16", "m32n8k16") for kind in ("bf16",)),
    *((s, kind, "s32", "s32") for s in ("m16n16k16", "m8n32k16", "m32n8k16") for kind in ("s8", "u8")),
    ("m16n16k8", "tf32", "f32", "f32"),
    ("m8n8k4", "f64", "f64", "f64"),
    ("m8n8k32", "s4", "s32", "s32"),
    ("m8n8k32", "u4", "s32", "s32"),
    ("m8n8k128", "b1", "s32", "s32"),
]


def extents(shape):
    m, rest = shape[1:].split("n")
    n, k = rest.split("k")
    return int(m), int(n), int(k)


def fragment_registers(operand, shape, kind):
    """Registers of a fragment by the ISA's table."""
    m, n, k = extents(shape)
    if kind == "f16" and operand in "ab":
        return 8
    elements = {"a": m * k, "b": n * k, "c": m * n, "d": m * n}[operand] // 32
    return elements if kind == "f64" else elements * _BITS[kind] // 32


_MAJORS = list(itertools.product(("row", "col"), repeat=2))


@pytest.mark.parametrize(
    ("shape", "kind", "c_kind", "d_kind", "a_major", "b_major"),
    [(*case, *majors) for case in _WMMA for majors in (_MAJORS if _BITS[case[1]] >= 8 else [("row", "col")])],
)
def test_wmma(shape, kind, c_kind, d_kind, a_major, b_major):
    m, n, k = extents(shape)
    sub_byte = _BITS[kind] < 8
    rng = np.random.default_rng(0)
    a, b, c = numbers(rng, kind, (m, k)), numbers(rng, kind, (k, n)), numbers(rng, c_kind, (m, n))
    pad = 0 if sub_byte else 16  # beyond the extents, so that the stride is no product of them

    def stored(matrix, name, major):
        rows = matrix if major == "row" else matrix.T
        wide = np.zeros((rows.shape[0], rows.shape[1] + pad), rows.dtype)
        wide[:, : rows.shape[1]] = rows
        return in_memory(wide, name), wide.shape[1]

    (ma, lda), (mb, ldb) = stored(a, kind, a_major), stored(b, kind, b_major)
    mc, ldc = stored(c, c_kind, "col")
    out = np.zeros((m, n + pad), _TYPES[d_kind])
    register = "f64" if kind == "f64" else "b32"
    prefix = "%fd" if kind == "f64" else "%r"
    first, names = 1, {}
    for operand, name in (("a", kind), ("b", kind), ("c", c_kind), ("d", d_kind)):
        count = fragment_registers(operand, shape, name)
        names[operand] = "{" + ", ".join(f"{prefix}{first + x}" for x in range(count)) + "}"
        first += count
    types = {"f16": f"{d_kind}.{c_kind}"}.get(kind, f"{d_kind}.{kind}.{kind}.{c_kind}")
    operation = ".xor.popc" if kind == "b1" else ""
    module = load_ptx(f"""{_HEAD}.visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d,
    .param .u32 lda, .param .u32 ldb, .param .u32 ldc, .param .u32 ldd) {{
    .reg .{register} {prefix}<64>; .reg .b64 %rd<8>; .reg .b32 %s<4>;
    ld.param.u64 %rd0, [a]; ld.param.u64 %rd1, [b]; ld.param.u64 %rd2, [c]; ld.param.u64 %rd3, [d];
    ld.param.u32 %s0, [lda]; ld.param.u32 %s1, [ldb]; ld.param.u32 %s2, [ldc]; ld.param.u32 %s3, [ldd];
    wmma.load.a.sync.aligned.{a_major}.{shape}.global.{kind} {names["a"]}, [%rd0], %s0;
    wmma.load.b.sync.aligned.{b_major}.{shape}.{kind} {names["b"]}, [%rd1], %s1;
    wmma.load.c.sync.aligned.col.{shape}.global.{c_kind} {names["c"]}, [%rd2], %s2;
    wmma.mma{operation}.sync.aligned.{a_major}.{b_major}.{shape}.{types} {names["d"]}, {names["a"]}, {names["b"]},
        {names["c"]};
    wmma.store.d.sync.aligned.row.{shape}.global.{d_kind} [%rd3], {names["d"]}, %s3;
    ret; }}""")
    module.launch("k", 1, 32, (ma, mb, mc, out, lda, ldb, ldc, n + pad))
    product = (a[:, :, None] != b[None]).sum(1) if kind == "b1" else a.astype(float) @ b.astype(float)
    np.testing.assert_array_equal(out[:, :n].astype(float), product + c)


def rows_and_columns(kind, rows, k):
    """Of each lane's elements of A, or of B transposed, row and column, by the ISA's formulas."""
    pack = max(1, 32 // _BITS[kind])
    found = np.zeros((32, rows * k // 32, 2), int)
    for lane, i in itertools.product(range(32), range(rows * k // 32)):
        group, within = lane >> 2, lane % 4
        register = i // pack
        row = group if rows == 8 or register % 2 == 0 else group + 8
        step = register if rows == 8 else register // 2
        found[lane, i] = row, within * pack + i % pack + 4 * pack * step
    return found


def accumulators(rows):
    found = np.zeros((32, rows // 4, 2), int)
    for lane, i in itertools.product(range(32), range(rows // 4)):
        found[lane, i] = (lane >> 2) + (8 if i >= 2 else 0), (lane % 4) * 2 + (i & 1)
    return found


def multiply(instruction, a, b, c, c_kind, is_f64=False, more=""):
    """Run one instruction of a warp on registers by lane; the result's registers."""
    counts = [x.shape[1] for x in (a, b, c)]
    kind, prefix, size = ("f64", "%fd", 8) if is_f64 else ("b32", "%r", 4)
    text, first, names = "", 1, []
    for n, count in enumerate(counts):
        mine = [f"{prefix}{first + x}" for x in range(count)]
        names.append("{" + ", ".join(mine) + "}")
        first += count
        text += f"ld.param.u64 %rd1, [p{n}]; mad.wide.u32 %rd1, %lane, {count * size}, %rd1;\n"
        text += "".join(f"ld.global.{kind} {r}, [%rd1+{size * x}];\n" for x, r in enumerate(mine))
    result = [f"{prefix}{first + x}" for x in range(counts[2])]
    text += f"{instruction} {{{', '.join(result)}}}, {names[0]}, {names[1]}, {names[2]}{more};\n"
    text += f"ld.param.u64 %rd1, [p3]; mad.wide.u32 %rd1, %lane, {counts[2] * size}, %rd1;\n"
    text += "".join(f"st.global.{kind} [%rd1+{size * x}], {r};\n" for x, r in enumerate(result))
    if more:
        text = "ld.param.u64 %rd1, [p4]; mad.wide.u32 %rd1, %lane, 4, %rd1; ld.global.b32 %meta, [%rd1];\n" + text
    module = load_ptx(f"""{_HEAD}.visible .entry k(.param .u64 p0, .param .u64 p1, .param .u64 p2, .param .u64 p3,
    .param .u64 p4) {{ .reg .{kind} {prefix}<64>; .reg .b64 %rd<2>; .reg .b32 %lane, %meta;
    mov.u32 %lane, %laneid;\n{text} ret; }}""")
    return module


def run(module, a, b, c, metadata=None):
    d = np.zeros_like(c)
    module.launch("k", 1, 32, (a, b, c, d, metadata))
    return d


def gathered(matrix, places, kind):
    return registers(to_bits(matrix, kind)[places[..., 0], places[..., 1]], _BITS[kind])


_MMA = [
    *(
        (16, k, kind, d)
        for k, kinds in ((8, "f16 bf16 tf32"), (16, "f16 bf16"))
        for kind in kinds.split()
        for d in ["f32"]
    ),
    (16, 4, "tf32", "f32"),
    (16, 8, "f16", "f16"),
    (16, 16, "f16", "f16"),
    *((16, 32, kind, "f32") for kind in ("e4m3", "e5m2")),
    *((rows, k, kind, "s32") for rows, k in ((8, 16), (16, 16), (16, 32)) for kind in ("s8", "u8")),
    *((rows, k, kind, "s32") for rows, k in ((8, 32), (16, 32), (16, 64)) for kind in ("s4", "u4")),
    *((rows, k, "b1", "s32") for rows, k in ((8, 128), (16, 128), (16, 256))),
    *((rows, k, "f64", "f64") for rows, k in ((8, 4), (16, 4), (16, 8), (16, 16))),
]


@pytest.mark.parametrize(
    ("rows", "k", "kind", "d", "operation"),
    [(*case, operation) for case in _MMA for operation in (["xor", "and"] if case[2] == "b1" else [""])],
)
def test_mma(rows, k, kind, d, operation):
    rng = np.random.default_rng(1)
    b_kind = {"s8": "u8", "u8": "s8", "s4": "u4", "u4": "s4", "e4m3": "e5m2", "e5m2": "e4m3"}.get(kind, kind)
    a, b, c = numbers(rng, kind, (rows, k)), numbers(rng, b_kind, (8, k)), numbers(rng, d, (rows, 8))
    tail = f".{operation}.popc" if kind == "b1" else ""
    instruction = f"mma.sync.aligned.m{rows}n8k{k}.row.col.{d}.{kind}.{b_kind}.{d}{tail}"
    fragments = (
        gathered(a, rows_and_columns(kind, rows, k), kind),
        gathered(b, rows_and_columns(b_kind, 8, k), b_kind),
        gathered(c, accumulators(rows), d),
    )
    found = run(multiply(instruction, *fragments, d, kind == "f64"), *fragments)
    if kind == "b1":
        product = ((a[:, None] ^ b[None]) if operation == "xor" else (a[:, None] & b[None])).sum(2)
    else:
        product = a.astype(float) @ b.astype(float).T
    np.testing.assert_array_equal(found, gathered(product + c, accumulators(rows), d))


@pytest.mark.parametrize(("a_major", "b_major"), _MAJORS)
@pytest.mark.parametrize(("c_kind", "d_kind"), [("f16", "f16"), ("f16", "f32"), ("f32", "f32")])
def test_mma_of_quad_pairs(a_major, b_major, c_kind, d_kind):
    """mma.m8n8k4 of f16: four products of 8 x 8 x 4, each by two quads of lanes."""
    rng = np.random.default_rng(2)
    a, b, c = (rng.integers(-4, 5, (4, *shape)) for shape in ((8, 4), (4, 8), (8, 8)))
    lanes = np.arange(32)
    number, high = lanes % 16 // 4, lanes >= 16

    def of(matrix, kind, place):
        values = np.array(
            [[matrix[(number[x], *place(x, i))] for i in range(4 if place is not at_c else 8)] for x in lanes]
        )
        return registers(to_bits(values, kind), _BITS[kind])

    def at_a(x, i):
        return (x % 4 + 4 * high[x], i) if a_major == "row" else (i + 4 * high[x], x % 4)

    def at_b(x, i):
        return (x % 4, i + 4 * high[x]) if b_major == "row" else (i, x % 4 + 4 * high[x])

    def accumulated(kind):
        def place(x, i):
            if kind == "f16":
                return x % 4 + 4 * high[x], i
            return (x & 1) + (i & 2) + 4 * high[x], (i & 4) + (x & 2) + (i & 1)

        return place

    at_c = accumulated(c_kind)
    fragments = of(a, "f16", at_a), of(b, "f16", at_b), of(c, c_kind, at_c)
    at_c = accumulated(d_kind)
    expected = of(a @ b + c, d_kind, at_c)
    instruction = f"mma.sync.aligned.m8n8k4.{a_major}.{b_major}.{d_kind}.f16.f16.{c_kind}"
    if c_kind != d_kind:
        wide = np.zeros_like(expected)
        alike = instruction.removesuffix(c_kind) + d_kind
        text = multiply(alike, *fragments[:2], wide, d_kind).text.replace(alike, instruction)
        names = ", ".join(f"%r{n}" for n in (5, 6, 7, 8))
        # C has four registers where D has eight.
        text = text.replace("{%r5, %r6, %r7, %r8, %r9, %r10, %r11, %r12};", f"{{{names}}};")
        text = text.replace("%lane, 32, %rd1;\nld.global.b32 %r5", "%lane, 16, %rd1;\nld.global.b32 %r5")
        text = "\n".join(x for x in text.splitlines() if not any(f"ld.global.b32 %r{n}," in x for n in (9, 10, 11, 12)))
        found = np.zeros_like(expected)
        load_ptx(text).launch("k", 1, 32, (*fragments, found, None))
    else:
        found = run(multiply(instruction, *fragments, d_kind), *fragments)
    np.testing.assert_array_equal(found, expected)


_SPARSE = [
    *((k, kind, "f32") for k in (16, 32) for kind in ("f16", "bf16")),
    *((k, "tf32", "f32") for k in (8, 16)),
    *((k, kind, "s32") for k in (32, 64) for kind in ("s8", "u8")),
    (64, "e4m3", "f32"),
    *((k, kind, "s32") for k in (64, 128) for kind in ("s4", "u4")),
]


def sparse(rng, k, kind):
    """A matrix of which half is zero, what is kept of it, and the bits of each row's chunks."""
    chunk, width = {"tf32": (2, 1), "s4": (8, 2), "u4": (8, 2)}.get(kind, (4, 1))
    whole, kept, bits = np.zeros((16, k), int), [], []
    for row in range(16):
        for start in range(0, k, chunk):
            values = numbers(rng, kind, chunk // 2)
            if kind == "tf32":
                place = int(rng.integers(2))
                whole[row, start + place] = values[0]
                bits.append([0b0100, 0b1110][place])
            else:
                places = sorted(rng.choice(4, 2, replace=False).tolist())
                for n, place in enumerate(places):
                    whole[row, start + place * width : start + (place + 1) * width] = values[
                        n * width : (n + 1) * width
                    ]
                bits.append(places[0] | places[1] << 2)
            kept += values.tolist()
    return whole, np.array(kept).reshape(16, k // 2), np.array(bits).reshape(16, -1)


@pytest.mark.parametrize(("k", "kind", "d"), _SPARSE)
@pytest.mark.parametrize("ordered", ["", "::ordered_metadata"])
def test_sparse_mma(k, kind, d, ordered):
    rng = np.random.default_rng(3)
    whole, kept, bits = sparse(rng, k, kind)
    b, c = numbers(rng, kind, (8, k)), numbers(rng, d, (16, 8))
    fragments = (
        gathered(kept, rows_and_columns(kind, 16, k // 2), kind),
        gathered(b, rows_and_columns(kind, 8, k), kind),
        gathered(c, accumulators(16), d),
    )
    lanes = bits.shape[1] // 4  # of a quad, that give metadata
    for selector in range(4 // lanes):
        metadata = rng.integers(0, 2**32, 32, dtype=np.uint32)  # of the others nothing is read
        for quad, lane in itertools.product(range(8), range(lanes)):
            if _BITS[kind] <= 8:
                nibbles = bits[quad + 8 * (lane % 2), lane // 2 * 8 : lane // 2 * 8 + 8]
            else:
                nibbles = np.concatenate([bits[row, 4 * lane : 4 * lane + 4] for row in (quad, quad + 8)])
            word = sum(int(x) << 4 * n for n, x in enumerate(nibbles))
            metadata[4 * quad + selector * lanes + lane] = word
        instruction = f"mma.sp{ordered}.sync.aligned.m16n8k{k}.row.col.{d}.{kind}.{kind}.{d}"
        module = multiply(instruction, *fragments, d, more=f", %meta, {selector}")
        found = run(module, *fragments, metadata)
        expected = gathered(whole.astype(float) @ b.astype(float).T + c, accumulators(16), d)
        np.testing.assert_array_equal(found, expected)


def test_matrices_are_transposed():
    matrix = np.arange(64, dtype=np.uint16).reshape(8, 8)
    found = np.zeros(32, np.uint32)
    module = load_ptx(f"""{_HEAD}.visible .entry k(.param .u64 a, .param .u64 d) {{
    .reg .b64 %rd<3>; .reg .b32 %r<4>; mov.u32 %r1, %tid.x;
    ld.param.u64 %rd1, [a]; mad.wide.u32 %rd1, %r1, 4, %rd1; ld.global.u32 %r2, [%rd1];
    movmatrix.sync.aligned.m8n8.trans.b16 %r3, %r2;
    ld.param.u64 %rd2, [d]; mad.wide.u32 %rd2, %r1, 4, %rd2; st.global.u32 [%rd2], %r3; ret; }}""")
    module.launch("k", 1, 32, (matrix.view(np.uint32), found))
    np.testing.assert_array_equal(found.view(np.uint16).reshape(8, 8), matrix.T)
