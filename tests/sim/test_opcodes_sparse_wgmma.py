"""wgmma with a sparse A, and of single bits: every type, both sources of A, all layouts, selectors, what zeros meet.

Matrices are small integers, so that every sum is exact. What is kept and its metadata are laid out by the figures of
the PTX ISA, "Matrix fragments for sparse wgmma.mma_async", written out here lane by lane.
"""

from __future__ import annotations

import numpy as np
import pytest

from cutepy.sim import DescriptorError, UnknownInstructionError
from cutepy.sim.ptx.tokens import PtxSyntaxError
from cutepy.sim.run import Run
from tests.messages import refuses
from tests.sim.opcode_runner import launch
from tests.sim.test_opcodes_wgmma import BYTES, TYPES, M, descriptor, fragment_of_a, matrix_of_d, numbers, place

B_OFFSET = 16384
N = 16


def sparse(k, kind, seed=3):
    """A matrix (64, k) of which half is zero, what is kept of it (64, k / 2), and 4 bits for each chunk of a row."""
    rng = np.random.default_rng(seed)
    chunk = 2 if kind == "tf32" else 4
    kept = numbers((M, k // 2), kind, seed)
    whole, bits = np.zeros((M, k), np.int64), np.zeros((M, k // chunk), np.uint32)
    for row in range(M):
        for c in range(k // chunk):
            if kind == "tf32":
                (place,) = rng.integers(2, size=1).tolist()
                whole[row, 2 * c + place] = kept[row, c]
                bits[row, c] = [0b0100, 0b1110][place]
            else:
                first, second = sorted(rng.choice(4, 2, replace=False).tolist())
                whole[row, 4 * c + first], whole[row, 4 * c + second] = kept[row, 2 * c], kept[row, 2 * c + 1]
                bits[row, c] = first | second << 2
    return whole, kept, bits


def metadata_of(bits, kind, step, selector):
    """The word of each thread for one K step; threads that are not selected have noise."""
    words = np.random.default_rng(9).integers(0, 2**32, 128, dtype=np.uint32)
    for t in range(128):
        row, lane = t // 32 * 16 + t % 32 // 4, t % 4
        if BYTES[kind] == 1:  # every lane: 8 chunks of row r or r + 8
            nibbles = bits[row + 8 * (lane & 1), 16 * step + 8 * (lane >> 1) :][:8]
        elif lane // 2 == selector:  # a pair of lanes: 4 chunks of row r, and 4 of row r + 8
            nibbles = [*bits[row, 8 * step + 4 * (lane & 1) :][:4], *bits[row + 8, 8 * step + 4 * (lane & 1) :][:4]]
        else:
            continue
        words[t] = sum(int(x) << 4 * n for n, x in enumerate(nibbles))
    return words


def multiply(
    types,
    *,
    source="SS",
    selector=0,
    majors=("K", "K"),
    modes=("SW32", "SW64"),
    signs=(1, 1),
    satfinite=False,
    b_codes=None,
    steps=1,
    exact=False,
):
    """Run D = A * B over some K steps, and return D and what it should be."""
    d, a, b = types
    k = steps * 64 // BYTES[a]
    whole, kept, bits = sparse(k, a)
    matrix_b = numbers((N, k), b, 2)
    data_a, lbo_a, sbo_a, advance_a = place(kept, a, majors[0], modes[0])
    data_b, lbo_b, sbo_b, advance_b = place(matrix_b, b, majors[1], modes[1])
    smem = np.zeros(B_OFFSET + len(data_b), np.uint8)
    smem[: len(data_a)], smem[B_OFFSET:] = data_a, data_b
    if b_codes is not None:
        smem[B_OFFSET:] = b_codes(data_b)
    registers = [f"%r{200 + v}" if d != "f32" else f"%f{v}" for v in range(N // (4 if d == "f16" else 2))]
    opcode = f"wgmma.mma_async.sp.sync.aligned.m64n{N}k{64 // BYTES[a]}{'.satfinite' if satfinite else ''}"
    lines, loads = ["wgmma.fence.sync.aligned;"], []
    for step in range(steps):
        first, (d_a, d_b) = f"%rd{2 * step}", (f"%rd{2 * step}", f"%rd{2 * step + 1}")
        words = (
            descriptor(step * advance_a, lbo_a, sbo_a, modes[0]),
            descriptor(B_OFFSET + step * 2 * advance_b, lbo_b, sbo_b, modes[1]),
        )
        loads += [
            f"mov.b64 {name}, {word:#x}; add.s64 {name}, {name}, %rd50;"
            for name, word in zip((d_a, d_b), words, strict=True)
        ]
        if source == "RS":
            names = [f"%r{20 + 4 * step + r}" for r in range(4)]
            loads += [f"ld.global.b32 {name}, [%rd53+{2048 * step + 4 * r}];" for r, name in enumerate(names)]
            first = "{" + ", ".join(names) + "}"
        loads.append(f"ld.global.b32 %r{100 + step}, [%rd54+{512 * step}];")
        tail = [] if d == "s32" else [str(s) for s in signs]
        if BYTES[a] == 2:
            tail += [str(int(m == "MN")) for m in (majors if source == "SS" else majors[1:])]
        operands = [f"{{{', '.join(registers)}}}", first, d_b, f"%r{100 + step}", str(selector), f"%p{1 + (step > 0)}"]
        lines.append(f"{opcode}.{d}.{a}.{b} {', '.join([*operands, *tail])};")
    lines += ["wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 0;"]
    found = np.zeros((128, len(registers)), np.float32 if d == "f32" else np.uint32)
    fragments = np.stack([fragment_of_a(kept, a, step) for step in range(steps)])
    metadata = np.stack([metadata_of(bits, a, step, selector) for step in range(steps)])
    run_body("\n".join(lines), smem, found, registers, "\n".join(loads), fragments, metadata, exact=exact)
    found = found.view({"f32": np.float32, "f16": np.float16, "s32": np.int32}[d])
    expected = signs[0] * signs[1] * (whole @ matrix_b.astype(np.int64).T)
    return matrix_of_d(found, N), expected, matrix_b


def run_body(body, smem, found, registers, loads, *more, exact=False):
    """Run MMAs on shared memory filled with bytes; D starts as zero and goes to `found`."""
    before = f"""mov.u32 %r1, %tid.x; ld.param.u64 %rd60, [p0]; ld.param.u64 %rd51, [p1]; ld.param.u64 %rd53, [p2];
    ld.param.u64 %rd54, [p3];
    mov.u32 %r2, smem; mov.u32 %r3, %r1; shr.u32 %r10, %r2, 4; cvt.u64.u32 %rd50, %r10;
    COPY: mul.lo.u32 %r4, %r3, 16; add.u32 %r5, %r4, %r2; cvt.u64.u32 %rd61, %r4; add.u64 %rd61, %rd60, %rd61;
    ld.global.v4.u32 {{%r6, %r7, %r8, %r9}}, [%rd61]; st.shared.v4.u32 [%r5], {{%r6, %r7, %r8, %r9}};
    add.u32 %r3, %r3, 128; setp.lt.u32 %p60, %r3, {len(smem) // 16}; @%p60 bra COPY;
    fence.proxy.async.shared::cta; bar.sync 0; setp.ne.u32 %p1, %r1, %r1; setp.eq.u32 %p2, %r1, %r1;
    mad.wide.u32 %rd51, %r1, {4 * len(registers)}, %rd51; mad.wide.u32 %rd53, %r1, 16, %rd53;
    mad.wide.u32 %rd54, %r1, 4, %rd54;"""
    before += "".join(f"ld.global.b32 {name}, [%rd51+{4 * v}];" for v, name in enumerate(registers)) + loads
    after = "".join(f"st.global.b32 [%rd51+{4 * v}], {name};" for v, name in enumerate(registers))
    options = {"before": before, "after": after, "smem_bytes": len(smem), "directives": ".maxntid 128, 1, 1"}
    return launch(body, smem, found, *more, block=128, run=Run((), None, exact_mma=True) if exact else None, **options)


@pytest.mark.parametrize("types", TYPES, ids=".".join)
@pytest.mark.parametrize("source", ["SS", "RS"])
def test_types(types, source):
    found, expected, _ = multiply(types, source=source)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kind", ["f16", "bf16", "tf32"])
@pytest.mark.parametrize("source", ["SS", "RS"])
def test_the_other_lanes_give_the_metadata(kind, source):
    found, expected, _ = multiply(("f32", kind, kind), source=source, selector=1)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("modes", [("INTER", "INTER"), ("SW64", "SW128"), ("SW32", "INTER")], ids="-".join)
@pytest.mark.parametrize("kind", ["f16", "e4m3", "tf32"])
def test_layouts(modes, kind):
    """A has 32 bytes of K in an instruction, B has 64; two instructions continue each other."""
    steps = 1 if modes[0] == "SW32" else 2
    found, expected, _ = multiply(("f32", kind, kind), modes=modes, steps=steps)
    np.testing.assert_array_equal(found, expected)


_MAJORS = [("MN", "K", mode, "SW64") for mode in ("INTER", "SW32", "SW64", "SW128")]
_MAJORS += [("K", "MN", "SW32", mode) for mode in ("INTER", "SW32")]  # 16 columns are 32 bytes
_MAJORS += [("MN", "MN", "SW128", "SW32")]


@pytest.mark.parametrize("case", _MAJORS, ids="-".join)
def test_majors(case):
    found, expected, _ = multiply(("f32", "bf16", "bf16"), majors=case[:2], modes=case[2:])
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("signs", [(-1, 1), (-1, -1)])
@pytest.mark.parametrize("types", [("f32", "f16", "f16"), ("f16", "e5m2", "e4m3")], ids=".".join)
def test_signs(signs, types):
    found, expected, _ = multiply(types, signs=signs)
    np.testing.assert_array_equal(found, expected)


def test_integers_saturate():
    found, expected, _ = multiply(("s32", "u8", "u8"), satfinite=True)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("exact", [False, True])
def test_zeros_meet_nothing(exact):
    """Products of dropped elements are skipped: infinities of B count only where A is kept, a zero too."""
    infinite = np.zeros((N, 32), bool)
    infinite[np.arange(N), np.arange(N) * 7 % 32] = True

    def codes(data):
        marked, *_ = place(infinite.astype(int), "f16", "K", "SW64")
        return np.where(marked.view(np.uint16) != 0, 0x7C00, data.view(np.uint16)).astype(np.uint16).view(np.uint8)

    found, _, b = multiply(("f32", "f16", "f16"), b_codes=codes, exact=exact)
    _, kept, bits = sparse(32, "f16")
    expected = np.zeros((M, N), np.float32)
    for row in range(M):
        for n in range(N):
            for j in range(16):
                place_in_chunk = int(bits[row, j // 2]) >> 2 * (j % 2) & 3
                column = 4 * (j // 2) + place_in_chunk
                value = np.float32(np.inf) if infinite[n, column] else np.float32(b[n, column])
                with np.errstate(invalid="ignore"):
                    expected[row, n] += np.float32(kept[row, j]) * value
    np.testing.assert_array_equal(found, expected)
    assert np.isfinite(expected).any()


@pytest.mark.parametrize("source", ["SS", "RS"])
@pytest.mark.parametrize("mode", ["INTER", "SW32", "SW64", "SW128"])
def test_single_bits(source, mode):
    """Counts of the bits that rows of A and columns of B have in common: 256 of them in an instruction."""
    steps = {"SW64": 2, "SW128": 4}.get(mode, 1)
    rng = np.random.default_rng(4)
    a, b = rng.integers(0, 256, (M, 32 * steps)), rng.integers(0, 256, (N, 32 * steps))
    data_a, lbo_a, sbo_a, advance_a = place(a, "u8", "K", mode)
    data_b, lbo_b, sbo_b, advance_b = place(b, "u8", "K", mode)
    smem = np.zeros(B_OFFSET + len(data_b), np.uint8)
    smem[: len(data_a)], smem[B_OFFSET:] = data_a, data_b
    registers = [f"%r{200 + v}" for v in range(N // 2)]
    lines, loads = ["wgmma.fence.sync.aligned;"], []
    for step in range(steps):
        words = (
            descriptor(step * advance_a, lbo_a, sbo_a, mode),
            descriptor(B_OFFSET + step * advance_b, lbo_b, sbo_b, mode),
        )
        loads += [
            f"mov.b64 %rd{2 * step + n}, {word:#x}; add.s64 %rd{2 * step + n}, %rd{2 * step + n}, %rd50;"
            for n, word in enumerate(words)
        ]
        first = f"%rd{2 * step}"
        if source == "RS":
            names = [f"%r{20 + 4 * step + r}" for r in range(4)]
            loads += [f"ld.global.b32 {name}, [%rd53+{2048 * step + 4 * r}];" for r, name in enumerate(names)]
            first = "{" + ", ".join(names) + "}"
        lines.append(
            f"wgmma.mma_async.sync.aligned.m64n{N}k256.s32.b1.b1.and.popc {{{', '.join(registers)}}}, {first}, "
            f"%rd{2 * step + 1}, %p{1 + (step > 0)};"
        )
    lines += ["wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 0;"]
    found = np.zeros((128, len(registers)), np.uint32)
    fragments = np.stack([fragment_of_a(a, "u8", step) for step in range(steps)])
    run_body("\n".join(lines), smem, found, registers, "\n".join(loads), fragments, np.zeros(128, np.uint32))
    expected = [[sum(int(x & y).bit_count() for x, y in zip(row, column, strict=True)) for column in b] for row in a]
    np.testing.assert_array_equal(matrix_of_d(found, N), expected)


def test_a_layout_too_narrow_for_b_is_refused():
    one = "%rd1, %r9, 0, %p1, 1, 1, 0, 0;"
    with refuses(DescriptorError):
        launch(
            f"""mov.b64 %rd1, {descriptor(0, 16, 256, "SW32"):#x};
            wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 {{%f0, %f1, %f2, %f3}}, %rd1, {one}
            wgmma.commit_group.sync.aligned;
            wgmma.wait_group.sync.aligned 0;""",
            block=128,
            smem_bytes=8192,
        )


@pytest.mark.parametrize(
    ("form", "selector"),
    [
        ("m64n8k32.f32.f16.f16", "2"),
        ("m64n8k64.f32.e4m3.e4m3", "1"),
        ("m64n8k16.f32.f16.f16", "0"),
    ],
)
def test_refused(form, selector):
    registers = "{%f0, %f1, %f2, %f3}"
    with refuses((UnknownInstructionError, PtxSyntaxError)):
        launch(
            f"wgmma.mma_async.sp.sync.aligned.{form} {registers}, %rd1, %rd2, %r9, {selector}, %p1, 1, 1;",
            block=128,
            assembles=False,
        )
