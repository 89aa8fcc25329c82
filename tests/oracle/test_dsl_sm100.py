"""The CuTe DSL's Blackwell: what it prints for sm_100a is read as ours, and its descriptors are the same bits."""

import random
from typing import Any

import pytest

from cutepy.layouts import ComposedLayout, Layout, coalesce, parse, size, sm100, tile_to_shape
from cutepy.layouts.sm100.kinds import KINDS

pytestmark = pytest.mark.dsl

cutlass = pytest.importorskip("cutlass")
cute = pytest.importorskip("cutlass.cute")

from cutlass.cute.nvgpu import tcgen05  # noqa: E402
from cutlass.experimental.primitives import descriptors  # noqa: E402

_GROUPS = {1: tcgen05.CtaGroup.ONE, 2: tcgen05.CtaGroup.TWO}
_SOURCES = {"smem": tcgen05.OperandSource.SMEM, "tmem": tcgen05.OperandSource.TMEM}
_K = cute.nvgpu.OperandMajorMode.K


def traced(monkeypatch: pytest.MonkeyPatch, body: Any) -> list[Any]:
    """Call a generator of (what, value) while the DSL traces for sm_100a; return (what, the value's text)."""
    monkeypatch.setenv("CUTE_DSL_ARCH", "sm_100a")
    found: list[Any] = []

    def collect():
        found.extend((what, str(value)) for what, value in body())

    @cute.jit
    def host():
        collect()

    cute.compile(host, options="--gpu-arch=sm_100a")
    return found


def _alike(text: str, ours: Layout) -> bool:
    """Tell whether a printed layout is ours; the strides of modes of size 1 are free."""
    theirs = parse(text)
    return size(theirs) == size(ours) and coalesce(theirs) == coalesce(ours)


def test_mmas_and_accumulators(monkeypatch):
    cases = [
        ("f16", m, n, group, source)
        for group, ms in ((1, (64, 128)), (2, (128, 256)))
        for m in ms
        for n in (32, 256)
        for source in ("smem", "tmem")
    ]

    def made():
        for case in cases:
            _, m, n, group, source = case
            op = tcgen05.MmaF16BF16Op(
                cutlass.Float16, cutlass.Float32, (m, n, 16), _GROUPS[group], _SOURCES[source], _K, _K
            )
            mma = cute.make_tiled_mma(op)
            yield ("mma", case), mma
            acc = mma.make_fragment_C(mma.partition_shape_C((m, n)))
            yield ("C", case), acc.layout
            yield ("C", case), acc
        for m, group in ((128, 1), (256, 2)):
            op = tcgen05.MmaMXF4NVF4Op(cutlass.Float8E4M3FN, (m, 128, 64), _GROUPS[group], _SOURCES["smem"])
            yield ("mma", ("mxf4nvf4", m, 128, group, "smem")), cute.make_tiled_mma(op)

    texts = traced(monkeypatch, made)
    assert len(texts) == 3 * len(cases) + 2
    for (what, (kind, m, n, group, source)), text in texts:
        ours = sm100.umma_traits(kind, m, n, cta_group=group, a_source=source)
        if what == "mma":
            theirs = parse(text)
            assert theirs.shape_mnk == ours.shape_mnk
            assert theirs.thr_id == ours.thr_id
            for mine, printed in zip(
                (ours.a_layout, ours.b_layout, ours.c_layout),
                (theirs.a_layout, theirs.b_layout, theirs.c_layout),
                strict=True,
            ):
                assert coalesce(printed) == coalesce(mine)
        else:
            assert _alike(text, ours.accumulator.layout)


def test_atoms_of_shared_memory(monkeypatch):
    """The DSL's atom of SW128_32B has 8 rows, two of C++ CuTe's; all others are the same."""
    widths = {16: cutlass.Float16, 32: cutlass.Float32, 8: cutlass.Float8E4M3FN}

    def made():
        for kind in tcgen05.SmemLayoutAtomKind:
            for bits, dtype in widths.items():
                yield (kind.name, bits), tcgen05.make_smem_layout_atom(kind, dtype)

    for (name, bits), text in traced(monkeypatch, made):
        major, mode = name.split("_", 1)
        ours = sm100.umma_layout_atom(major, mode, bits, pointer_swizzle=True)
        if mode == "SW128_32B":
            ours = tile_to_shape(ours, (size(ours, 0), 8))
        theirs = parse(text)
        # It prints the swizzle as a function on bytes; one that exchanges nothing is left out as it is read.
        tile = theirs.layoutA if isinstance(theirs, ComposedLayout) else theirs
        assert coalesce(tile, (1, 1)) == coalesce(ours.layoutA, (1, 1))
        assert not isinstance(theirs, ComposedLayout) or theirs.layoutB == ours.layoutB


def test_copies_of_tensor_memory(monkeypatch):
    loads = [(f"Ld{shape}Op", shape, n) for shape in ("32x32b", "16x64b", "16x128b", "16x256b") for n in (1, 4, 32)]
    tiled = [("32x32b", 128, 32), ("16x256b", 128, 4), ("16x256b", 64, 2), ("16x128b", 64, 8)]
    copies = {
        "128x256b": tcgen05.Cp128x256bOp,
        "128x128b": tcgen05.Cp128x128bOp,
        "32x128b.warpx4": tcgen05.Cp4x32x128bOp,
        "64x128b.warpx2::02_13": tcgen05.Cp2x64x128b0213Op,
        "64x128b.warpx2::01_23": tcgen05.Cp2x64x128b0123Op,
    }

    def made():
        for name, shape, n in loads:
            load = getattr(tcgen05, name)(tcgen05.Repetition(n))
            yield ("ld", shape, n), cute.make_copy_atom(load, cutlass.Float32)
            store = getattr(tcgen05, name.replace("Ld", "St"))(tcgen05.Repetition(n))
            yield ("st", shape, n), cute.make_copy_atom(store, cutlass.Float32)
        for shape, m, n in tiled:
            op = tcgen05.MmaF16BF16Op(
                cutlass.Float16, cutlass.Float32, (m, 128, 16), _GROUPS[1], _SOURCES["smem"], _K, _K
            )
            mma = cute.make_tiled_mma(op)
            acc = mma.make_fragment_C(mma.partition_shape_C((m, 128)))
            load = cute.make_copy_atom(getattr(tcgen05, f"Ld{shape}Op")(tcgen05.Repetition(n)), cutlass.Float32)
            yield ("tiled", shape, (m, n)), tcgen05.make_tmem_copy(load, acc[(None, None), 0, 0])
        for shape, op in copies.items():
            for group in (1, 2):
                yield ("cp", shape, group), cute.make_copy_atom(op(_GROUPS[group]), cutlass.Float8E8M0FNU)

    texts = traced(monkeypatch, made)
    assert len(texts) == 2 * len(loads) + len(tiled) + 2 * len(copies)
    for (what, shape, n), text in texts:
        theirs = parse(text)
        if what == "tiled":
            ours = sm100.make_tmem_copy(sm100.tmem_load_traits(shape, n[1]), sm100.tmem_accumulator(n[0], 128))
            assert (theirs.layout_tv, theirs.tiler_mn) == (ours.layout_tv, ours.tiler_mn)
            continue
        traits = {
            "ld": lambda shape, n: sm100.tmem_load_traits(shape, n).in_elements(32),
            "st": lambda shape, n: sm100.tmem_store_traits(shape, n).in_elements(32),
            "cp": lambda shape, n: sm100.tmem_cp_traits(shape, cta_group=n).in_elements(8),
        }[what](shape, n)
        assert (theirs.src_layout, theirs.dst_layout) == (traits.src_layout, traits.dst_layout)


@pytest.mark.parametrize("kind", ["f16", "f8f6f4", "i8", "mxf8f6f4", "mxf4nvf4"])
def test_instruction_descriptors_are_the_same_bits(kind):
    types = {"f16": cutlass.Float16, "bf16": cutlass.BFloat16, "f32": cutlass.Float32, "s32": cutlass.Int32}
    types |= {"e4m3": cutlass.Float8E4M3FN, "e5m2": cutlass.Float8E5M2, "u8": cutlass.Uint8, "s8": cutlass.Int8}
    types |= {"e2m1": cutlass.Float4E2M1FN, "e2m3": cutlass.Float6E2M3FN, "e3m2": cutlass.Float6E3M2FN}
    known, draw = KINDS[kind], random.Random(kind)
    dense = [dtype for dtype in known.codes if kind != "f8f6f4" or dtype in ("e4m3", "e5m2")]  # the DSL's dense builder
    for _ in range(40):
        a, b = draw.choices(dense, k=2)
        m, n = draw.choice(known.m_choices()), draw.choice(known.n_choices(b_major="MN"))
        majors = [draw.choice(("K", "MN")) if known.takes_mn_major(dtype) else "K" for dtype in (a, b)]
        negated = [kind != "i8" and draw.random() < 0.5 for _ in "AB"]
        ours = {"a_dtype": a, "b_dtype": b, "a_major": majors[0], "b_major": majors[1]}
        ours |= {"a_negate": negated[0], "b_negate": negated[1]}
        theirs = {"a_dtype": types[a], "b_dtype": types[b], "m_dim": m, "n_dim": n}
        theirs |= {"a_major": int(majors[0] == "MN"), "b_major": int(majors[1] == "MN")}
        theirs |= {"a_negate": int(negated[0]), "b_negate": int(negated[1])}
        if known.block_scaled:
            scale = draw.choice(list(known.scale_codes))
            ids = draw.choices(range(4), k=2)
            ours |= {"scale_dtype": scale, "a_sf_id": ids[0], "b_sf_id": ids[1]}
            theirs |= {"scale_format": int(scale == "ue8m0"), "a_sf_id": ids[0], "b_sf_id": ids[1]}
            if kind == "mxf4nvf4":
                ours["sparsity_version"], long = 1, draw.random() < 0.5
                ours["k"], theirs["k_dim"] = (96, 1) if long else (64, 0)
                made = descriptors.Tcgen05MxOmmaInstrDesc.build(**theirs)
            else:
                made = descriptors.Tcgen05MxInstrDesc.build(**theirs)
        else:
            made = descriptors.Tcgen05InstrDesc.build(c_dtype=types["s32" if kind == "i8" else "f32"], **theirs)
        word = int(sm100.InstrDescriptor(kind, m, n, **ours))
        assert word == int(made.value) & 0xFFFFFFFF


def test_shared_memory_descriptors_have_the_same_fields():
    draw = random.Random(5)
    for _ in range(50):
        start, lbo, sbo = (16 * draw.randrange(1 << 14) for _ in range(3))
        ours = sm100.SmemDescriptor(
            start, lbo, sbo, base_offset=draw.randrange(8), layout_type=draw.choice((0, 1, 2, 4, 6))
        )
        theirs = descriptors.Tcgen05SmemDesc(int(ours))
        for name in sm100.SmemDescriptor.FIELDS.keys() - {"lbo_mode"}:
            unit = 16 if name in ("start_address", "leading_byte_offset", "stride_byte_offset") else 1
            assert getattr(theirs, name) * unit == getattr(ours, name)
        assert (
            descriptors.Tcgen05SmemSwizzle(ours.layout_type).name
            == {
                "INTER": "NONE",
                "SW32": "SWIZZLE_32B",
                "SW64": "SWIZZLE_64B",
                "SW128": "SWIZZLE_128B",
                "SW128_32B": "SWIZZLE_128B_ATOM_32B",
            }[ours.swizzle]
        )


def test_disagreement_is_seen():
    assert _alike("((64,(64,2)),1,1):((65536,(1,4194304)),0,0)", sm100.tmem_accumulator(128, 128, cta_group=2).layout)
    assert not _alike("((64,(64,2)),1,1):((65536,(1,65536)),0,0)", sm100.tmem_accumulator(128, 128, cta_group=2).layout)
