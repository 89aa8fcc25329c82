"""Tilings of wgmma atoms become the DSL's, and are read back as themselves."""

import pytest

from tests.messages import refuses

pytest.importorskip("cutlass")
pytestmark = pytest.mark.dsl

import cutlass  # noqa: E402
import cutlass.cute as cute  # noqa: E402

import cutepy  # noqa: E402
from cutepy.device.rules import wgmma_tiling  # noqa: E402
from cutepy.dsl import from_cute  # noqa: E402
from cutepy.dsl.atoms import to_tiled_mma  # noqa: E402
from cutepy.layouts import Layout, sm90  # noqa: E402


@cute.jit
def traced(make: cutlass.Constexpr):
    make()


@pytest.mark.parametrize("in_registers", [False, True])
@pytest.mark.parametrize("warpgroups", [1, 2])
@pytest.mark.parametrize(
    ("types", "majors"),
    [
        (("float16", "float16"), ("K", "MN")),
        (("bfloat16", "bfloat16"), ("K", "K")),
        (("float16", "float16"), ("k", "mn")),
        (("float8_e4m3fn", "float8_e5m2"), ("K", "K")),
        (("float32", "float32"), ("K", "K")),
        (("int8", "uint8"), ("K", "K")),
    ],
)
def test_a_tiling_is_read_back_as_itself(types, majors, warpgroups, in_registers):
    tiling = wgmma_tiling(*types, 96, warpgroups, a_in_registers=in_registers)
    found = []
    with cutepy.simulate():
        traced(lambda: found.append(from_cute(to_tiled_mma(tiling, *majors))))
    assert found[0].traits == tiling.traits
    assert found[0].thr_layout_vmnk == tiling.thr_layout_vmnk
    assert found[0].get_layoutC_TV() == tiling.get_layoutC_TV()


@pytest.mark.parametrize(
    ("tiling", "majors"),
    [
        (wgmma_tiling("float8_e5m2", "float8_e5m2", 64, 1), ("MN", "K")),
        (wgmma_tiling("float16", "float16", 64, 1, a_in_registers=True), ("MN", "K")),
        (sm90.TiledMMA(sm90.wgmma_traits("SM90_64x64x16_F16F16F16_SS")), ("K", "K")),
        (wgmma_tiling("float16", "float16", 64, 1), ("M", "K")),
        (sm90.TiledMMA(sm90.wgmma_traits("SM90_64x64x32_S32S8S8_SS_TN")), ("K", "K")),
        (
            sm90.TiledMMA(sm90.wgmma_traits("SM90_64x64x16_F32F16F16_SS"), Layout((1, 1, 1)), (64, None, None)),
            ("K", "K"),
        ),
    ],
)
def test_what_it_can_not_hold_is_refused(tiling, majors):
    with cutepy.simulate(), refuses(ValueError):
        traced(lambda: to_tiled_mma(tiling, *majors))


@pytest.mark.parametrize("arch", ["sm_100a", "sm_103a"])
def test_wgmma_is_refused_in_code_for_blackwell(arch):
    tiling = wgmma_tiling("float16", "float16", 64, 1)
    with cutepy.simulate(arch=arch), refuses(ValueError):
        traced(lambda: to_tiled_mma(tiling))
