"""The DSL's atoms, tiled MMAs and tiled copies, through the bridge: names, and the DSL's own tilings as ours."""

import pytest

from cutepy.layouts import Layout, sm80, sm90
from cutepy.layouts.render import picture_of
from tests.layouts import brute_force as bf
from tests.messages import refuses

pytestmark = pytest.mark.dsl

cutlass = pytest.importorskip("cutlass")
cute = pytest.importorskip("cutlass.cute")

from cutlass.cute import nvgpu  # noqa: E402
from cutlass.cute.nvgpu import cpasync, warp, warpgroup  # noqa: E402

from cutepy.dsl import from_cute  # noqa: E402
from tests.dsl.test_bridge import traced  # noqa: E402

F8, F16, BF16, F32 = cutlass.Float8E4M3FN, cutlass.Float16, cutlass.BFloat16, cutlass.Float32
K, MN = nvgpu.OperandMajorMode.K, nvgpu.OperandMajorMode.MN
SMEM, RMEM = warpgroup.OperandSource.SMEM, warpgroup.OperandSource.RMEM

MMAS = {
    "SM80_16x8x16_F16F16F16F16_TN": lambda: warp.MmaF16BF16Op(F16, F16, (16, 8, 16)),
    "SM80_16x8x8_F32BF16BF16F32_TN": lambda: warp.MmaF16BF16Op(BF16, F32, (16, 8, 8)),
    "SM80_16x8x8_F32TF32TF32F32_TN": lambda: warp.MmaTF32Op((16, 8, 8)),
    "SM89_16x8x32_F32E4M3E4M3F32_TN": lambda: warp.MmaFP8Op(F8, F32, (16, 8, 32)),
    "SM90_64x128x16_F32F16F16_SS": lambda: warpgroup.MmaF16BF16Op(F16, F32, (64, 128, 16), SMEM, K, MN),
    "SM90_64x24x16_F32BF16BF16_RS": lambda: warpgroup.MmaF16BF16Op(BF16, F32, (64, 24, 16), RMEM, K, K),
    "SM90_64x8x32_F32E4M3E4M3_SS_TN": lambda: warpgroup.MmaF8Op(F8, F8, F32, (64, 8, 32), SMEM, K, K),
    "SM90_64x64x32_S32S8U8_RS_TN_SATURATE": lambda: warpgroup.MmaI8Op(
        cutlass.Int8, cutlass.Uint8, cutlass.Int32, (64, 64, 32), RMEM, K, K
    ),
}
COPIES = {
    "SM75_U32x4_LDSM_N": lambda: (warp.LdMatrix8x8x16bOp(False, 4), F16, {}),
    "SM75_U16x4_LDSM_T": lambda: (warp.LdMatrix8x8x16bOp(True, 2), F16, {}),
    "SM90_U32x1_STSM_N": lambda: (warp.StMatrix8x8x16bOp(False, 1), BF16, {}),
    "SM90_U16x8_STSM_T": lambda: (warp.StMatrix8x8x16bOp(True, 4), F16, {}),
    "UniversalCopy<uint128_t>": lambda: (nvgpu.CopyUniversalOp(), F16, {"num_bits_per_copy": 128}),
    "UniversalCopy<uint32_t>": lambda: (nvgpu.CopyUniversalOp(), F8, {"num_bits_per_copy": 32}),
    "SM80_CP_ASYNC_CACHEGLOBAL<uint128_t>": lambda: (
        cpasync.CopyG2SOp(cache_mode=cpasync.LoadCacheMode.GLOBAL), F32, {"num_bits_per_copy": 128},
    ),
    "SM80_CP_ASYNC_CACHEALWAYS<uint64_t>": lambda: (cpasync.CopyG2SOp(), F32, {"num_bits_per_copy": 64}),
    "CopyG2R": lambda: (nvgpu.CopyG2ROp(), F32, {"num_bits_per_copy": 64}),
}  # fmt: skip


def test_atoms_have_the_names_of_cpp():
    found = traced(lambda: {name: from_cute(cute.make_mma_atom(make())) for name, make in MMAS.items()})
    for name, traits in found.items():
        known = sm80.mma_traits if name in sm80.mma_names() else sm90.wgmma_traits
        assert traits == known(name)


def test_copy_atoms_have_the_names_of_cpp():
    def read():
        made = {}
        for name, of in COPIES.items():
            operation, element, options = of()
            made[name] = from_cute(cute.make_copy_atom(operation, element, **options))
        return made

    found = traced(read)
    assert {name: atom.name for name, atom in found.items()} == {name: name for name in COPIES}
    assert [found[name].bits for name in ("UniversalCopy<uint32_t>", "CopyG2R")] == [8, 32]
    assert bf.table(found["SM75_U32x4_LDSM_N"].src_layout) == bf.table(Layout((32, 8), (8, 1)))


def test_unknown_atoms_keep_their_layouts():
    fma = traced(lambda: from_cute(cute.make_tiled_mma(nvgpu.MmaUniversalOp(F32), (4, 8, 1))))
    assert (fma.traits.name, fma.traits.c_dtype, fma.tile_shape) == ("MmaUniversal", "f32", (4, 8, 1))
    assert picture_of(fma, operand="C").cell(3, 5).text == "T23\nV0"


TILED = [
    (name, atoms, permutation)
    for name in ("SM80_16x8x16_F16F16F16F16_TN", "SM89_16x8x32_F32E4M3E4M3F32_TN", "SM90_64x24x16_F32BF16BF16_RS")
    for atoms in ((1, 1, 1), (2, 1, 1), (2, 2, 1), (1, 2, 1))
    for permutation in (None, "wide")
]


def test_tiled_mmas_hold_what_the_dsls_hold():
    def read():
        found = []
        for name, atoms, permutation in TILED:
            operation = MMAS[name]()
            m, n, k = operation.shape_mnk
            tiles = {"permutation_mnk": (m * atoms[0], 2 * n * atoms[1], k)} if permutation else {}
            live = cute.make_tiled_mma(operation, atoms, **tiles)
            layouts = (live.tv_layout_A_tiled, live.tv_layout_B_tiled, live.tv_layout_C_tiled)
            found.append((from_cute(live), [from_cute(layout) for layout in layouts], atoms, tiles))
        return found

    for mma, layouts, atoms, tiles in traced(read):
        assert mma.atom_layout_mnk.shape == atoms
        assert mma.permutation_mnk == tiles.get("permutation_mnk", (None, None, None))
        for operand, layout in zip("ABC", layouts, strict=True):
            assert bf.table(getattr(mma, f"get_layout{operand}_TV")()) == bf.table(layout)


def test_tiled_copies_are_the_dsls():
    """Made by the DSL's functions and read, they are what our functions make: tiler, and both sides."""

    def read():
        op = MMAS["SM80_16x8x16_F16F16F16F16_TN"]()
        small = cute.make_tiled_mma(op, (2, 2, 1), permutation_mnk=(32, 32, 16))
        large = cute.make_tiled_mma(MMAS["SM90_64x128x16_F32F16F16_SS"](), (2, 1, 1))
        atoms = {}
        for name, of in COPIES.items():
            operation, element, options = of()
            atoms[name] = cute.make_copy_atom(operation, element, **options)
        half = cute.make_copy_atom(nvgpu.CopyUniversalOp(), F16, num_bits_per_copy=32)
        plain = cute.make_tiled_copy_tv(
            atoms["UniversalCopy<uint128_t>"], cute.make_layout((16, 8), stride=(8, 1)), cute.make_layout((1, 8))
        )
        ldsm, stsm = atoms["SM75_U32x4_LDSM_N"], atoms["SM90_U16x8_STSM_T"]
        live = {
            "tv": plain,
            "A": cute.make_tiled_copy_A(ldsm, small),
            "B": cute.make_tiled_copy_B(atoms["SM75_U16x4_LDSM_T"], small),
            "C": cute.make_tiled_copy_C(stsm, large),
            "C_atom": cute.make_tiled_copy_C_atom(stsm, large),
            "S": cute.make_tiled_copy_S(half, plain),
            "D": cute.make_tiled_copy_D(half, plain),
            "given": cute.make_tiled_copy(half, cute.make_layout((4, 4), stride=(4, 1)), (4, 4)),
        }
        return from_cute(small), from_cute(large), {name: from_cute(copy) for name, copy in live.items()}

    small, large, found = traced(read)
    assert small.tile_shape == (32, 32, 16)
    half = sm90.make_copy_atom(sm90.universal_copy(32), 16)
    ldsm, ldsm_t = (
        sm90.make_copy_atom(sm90.ldmatrix_traits(number, transpose=transpose), 16)
        for number, transpose in ((4, False), (2, True))
    )
    stsm = sm90.make_copy_atom(sm90.stmatrix_traits(4, transpose=True), 16)
    vector = sm90.make_copy_atom(sm90.universal_copy(128), 16)
    plain = sm90.make_tiled_copy_tv(vector, Layout((16, 8), (8, 1)), Layout((1, 8)))
    ours = {
        "tv": plain,
        "A": sm90.make_tiled_copy_A(ldsm, small),
        "B": sm90.make_tiled_copy_B(ldsm_t, small),
        "C": sm90.make_tiled_copy_C(stsm, large),
        "C_atom": sm90.make_tiled_copy_C_atom(stsm, large),
        "S": sm90.make_tiled_copy_S(half, plain),
        "D": sm90.make_tiled_copy_D(half, plain),
        "given": sm90.TiledCopy(half, Layout((4, 4), (4, 1)), (4, 4)),
    }
    for name, copy in found.items():
        assert copy.atom.name == ours[name].atom.name
        assert copy.tiler_mn == ours[name].tiler_mn
        for side in ("get_layoutS_TV", "get_layoutD_TV"):
            assert bf.table(getattr(copy, side)()) == bf.table(getattr(ours[name], side)()), (name, side)


@pytest.mark.parametrize("stride", [(2, 1, 0), (1, 2, 0)])
@pytest.mark.parametrize("name", ["SM80_16x8x16_F16F16F16F16_TN", "SM90_64x24x16_F32BF16BF16_RS"])
def test_warps_and_warpgroups_stand_in_the_dsls_order(name, stride):
    def read():
        live = cute.make_tiled_mma(MMAS[name](), cute.make_layout((2, 2, 1), stride=stride))
        return from_cute(live), from_cute(live.tv_layout_C_tiled)

    mma, of_c = traced(read)
    assert mma.atom_layout_mnk == Layout((2, 2, 1), stride)
    assert bf.table(mma.get_layoutC_TV()) == bf.table(of_c)


def test_slices_are_read_as_the_whole():
    def read():
        mma = cute.make_tiled_mma(MMAS["SM80_16x8x16_F16F16F16F16_TN"](), (2, 1, 1))
        return from_cute(mma), from_cute(mma.get_slice(3))

    whole, part = traced(read)
    assert whole == part


def test_partitions_are_the_dsls():
    """Our partition of a layout equals the DSL's partition of the tensor, thread by thread."""

    def read():
        operation, element, options = COPIES["SM75_U32x4_LDSM_N"]()
        mma = cute.make_tiled_mma(MMAS["SM80_16x8x16_F16F16F16F16_TN"](), (2, 2, 1), permutation_mnk=(32, 32, 16))
        copy = cute.make_tiled_copy_A(cute.make_copy_atom(operation, element, **options), mma)
        tensor = cute.make_identity_tensor((64, 32))
        parts = []
        for thread in (0, 5, 37, 127):
            part = copy.get_slice(thread).partition_S(tensor)
            parts.append((thread, [part[i] for i in range(cute.size(part))]))
        return from_cute(copy), parts

    copy, parts = traced(read)
    for thread, coordinates in parts:
        part, offset = copy.partition_S(Layout((64, 32)), thread)
        found = [(offset + i) % 64 + 1j * ((offset + i) // 64) for i in bf.table(part)]
        assert found == [int(m) + 1j * int(n) for m, n in coordinates]


def test_dead_atoms_are_refused():
    kept = []

    def keep():
        kept.append(cute.make_mma_atom(MMAS["SM80_16x8x16_F16F16F16F16_TN"]()))
        return from_cute(kept[0]).name

    assert traced(keep) == "SM80_16x8x16_F16F16F16F16_TN"
    with refuses(RuntimeError):
        from_cute(kept[0])
