"""Instructions that compilers seldom choose, and those that are refused by name."""

import numpy as np
import pytest

from cutepy.sim.errors import UnknownInstructionError
from cutepy.sim.ptx.tokens import PtxSyntaxError
from tests.messages import refuses

from .launching import launch

_OF_THREAD = "mov.u32 %r1, %tid.x;" + "".join(
    f"mad.wide.u32 %rd{4 + n}, %r1, 4, %rd{n}; ld.global.u32 %r{4 + n}, [%rd{4 + n}];" for n in range(3)
)


@pytest.mark.parametrize("sign", ["s32", "u32"])
@pytest.mark.parametrize("opcode", ["mul24.hi", "mad24.hi"])
def test_the_upper_bits_of_a_product_of_24_bits(opcode, sign):
    rng = np.random.default_rng(3)
    a, b, c = rng.integers(0, 1 << 32, (3, 64), np.uint32)
    a[:2], b[:2] = 0x800000, (0x800000, 0x7FFFFF)
    out = np.zeros(64, np.uint32)
    operands = "%r4, %r5" + ", %r6" * (opcode == "mad24.hi")
    body = f"{_OF_THREAD} {opcode}.{sign} %r8, {operands}; mad.wide.u32 %rd9, %r1, 4, %rd3; st.global.u32 [%rd9], %r8;"
    launch(body, [a, b, c, out], block=(64, 1, 1))

    def low24(x):
        x &= 0xFFFFFF
        return x - (1 << 24) if sign == "s32" and x >> 23 else x

    expected = [
        ((low24(x) * low24(y) >> 16) + (z if opcode == "mad24.hi" else 0)) & 0xFFFFFFFF
        for x, y, z in zip(a.tolist(), b.tolist(), c.tolist(), strict=True)
    ]
    assert out.tolist() == expected


@pytest.mark.parametrize(
    "opcode", ["red.global.add.v2.f32", "red.global.v2.f32.add", "red.relaxed.gpu.global.v2.f32.add"]
)
def test_reductions_of_pairs(opcode):
    sums = np.arange(8, dtype=np.float32)
    launch(
        f"""mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 3; mad.wide.u32 %rd1, %r2, 8, %rd0;
        mov.f32 %f0, 0f3F800000; cvt.rn.f32.u32 %f1, %r1; {opcode} [%rd1], {{%f0, %f1}};""",
        [sums],
    )
    threads = np.arange(32).reshape(8, 4)
    added = np.stack([np.full(4, 8), threads.sum(0)], axis=1).reshape(-1)
    np.testing.assert_array_equal(sums, np.arange(8) + added)


@pytest.mark.parametrize(("rows", "k"), [(8, 4), (16, 4), (16, 8), (16, 16)])
def test_products_in_float64(rows, k):
    """Fragments as the ISA's tables say, element by element."""
    rng = np.random.default_rng(rows + k)
    a, b, c = rng.integers(-99, 99, (rows, k)), rng.integers(-99, 99, (k, 8)), rng.integers(-99, 99, (rows, 8))
    lanes = [divmod(lane, 4) for lane in range(32)]
    tall = rows // 8
    of_a = [
        [a[group + 8 * (n % tall), inside + 4 * (n // tall)] for n in range(tall * k // 4)] for group, inside in lanes
    ]
    of_b = [[b[inside + 4 * n, group] for n in range(k // 4)] for group, inside in lanes]
    of_c, of_d = (
        [[x[group + 8 * (n // 2), inside * 2 + n % 2] for n in range(2 * tall)] for group, inside in lanes]
        for x in (c, a @ b + c)
    )
    arrays = [np.array(x, np.float64) for x in (of_a, of_b, of_c)]
    out = np.zeros_like(arrays[2])
    names, body, start = [], "mov.u32 %r1, %tid.x;", 0
    for n, array in enumerate(arrays):
        count = array.shape[1]
        registers = [f"%e{start + m}" for m in range(count)]
        start += count
        names.append("{" + ", ".join(registers) + "}")
        body += f"mad.wide.u32 %rd9, %r1, {8 * count}, %rd{n};"
        body += "".join(f"ld.global.f64 {name}, [%rd9+{8 * m}];" for m, name in enumerate(registers))
    body += f"mma.sync.aligned.m{rows}n8k{k}.row.col.f64.f64.f64.f64 {names[2]}, {', '.join(names)};"
    body += f"mad.wide.u32 %rd9, %r1, {16 * tall}, %rd3;"
    body += "".join(f"st.global.f64 [%rd9+{8 * m}], {name};" for m, name in enumerate(names[2].strip("{}").split(", ")))
    launch(".reg .f64 %e<32>; " + body, [*arrays, out])
    np.testing.assert_array_equal(out, np.array(of_d))


@pytest.mark.parametrize(
    "line",
    [
        "cvt.rn.e4m3x2.f32 %h0, %f0, %f1;",
        "stmatrix.sync.aligned.m8n8.x1.shared.b8 [%r1], {%r2};",
        "fence.acq_rely.gpu;",
        "fence.proxy.asynchronous;",
        "ld.global.L3::256B.u32 %r1, [%rd0];",
    ],
)
def test_forms_that_do_not_exist_are_refused(line):
    with pytest.raises(PtxSyntaxError):
        launch(line)


def test_a_scope_that_does_not_exist_is_refused_at_its_line():
    with refuses(PtxSyntaxError):
        launch("fence.sys_;")


def test_a_destination_that_is_too_narrow_is_refused_at_its_line():
    with refuses(PtxSyntaxError):
        launch("add.u32 %h0, %r1, %r2;")


def test_a_product_of_types_that_it_does_not_have():
    registers = "{%f0, %f1, %f2, %f3}, {%r0, %r1}, {%r2}, {%f0, %f1, %f2, %f3}"
    with refuses(PtxSyntaxError):
        launch(f"mma.sync.aligned.m16n8k8.row.col.f32.f16.f16 {registers};")


@pytest.mark.parametrize(
    "line",
    [
        "multimem.red.global.add.f32 [%rd0], %f0;",
    ],
)
def test_what_is_refused_by_name(line):
    with refuses(UnknownInstructionError):
        launch(line)
