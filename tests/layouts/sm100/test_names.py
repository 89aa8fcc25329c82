"""Names and texts of Blackwell's objects: read back as they are written, drawn by name."""

import pytest

from cutepy.layouts import LayoutError, ParseError, coalesce, parse, sm90, sm100, tile_to_shape
from cutepy.layouts.notation.atoms import atom_named
from cutepy.layouts.render import picture_of
from tests.messages import refuses

TILE = tile_to_shape(sm100.umma_layout_atom("K", "SW128", 16), (128, 64))
VALUES = [
    sm100.SmemDescriptorIterator(TILE, major="K", bits=16, mma_shape=(128, 16)),
    sm100.SmemDescriptor(0x400, 16, 1024, layout_type=2),
    sm100.InstrDescriptor("mxf4nvf4", 128, 64, a_sf_id=2),
    sm100.tmem_accumulator(64, 64),
    sm100.umma_traits("mxf4", 128, 64),
    sm100.tmem_load_traits("16x64b", 2),
    sm100.tmem_cp_traits("64x128b.warpx2::01_23", cta_group=2),
    sm100.TmemPlan.of(D=64, SFA=4),
    sm100.TmemPlace(1, 2, 3),
    sm100.NarrowTensorMap("b4x16", (512, 128), (256,), (256, 128), swizzle="SW128"),
    sm100.FourRows(sm90.TensorMap("bf16", (512, 1000), (1024,), (64, 1)), 64, (7, 900, 2, 7)),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_reprs_paste_back(value):
    assert parse(repr(value)) == value


@pytest.mark.parametrize(
    "name", [*sm100.tmem_copy_names(), *(f"SM100_UTCCP_{shape}_2cta" for shape in ("4x32dp128bit", "128dp256bit"))]
)
def test_copies_are_known_by_name(name):
    assert sm100.traits_named(name).name == atom_named(name.lower()).name == name


@pytest.mark.parametrize(
    "text",
    [
        "tensor<ptr<f32, tmem, align<1>> o ((128,256),1,1):((65536,1),0,0)>",
        "tmem_[32b](0x0020.0005) o ((_128,_256),_1,_1):((_65536,_1),_0,_0)",
        "((_128,_256),_1,_1):((_65536,_1),_0,_0)",
    ],
    ids=["DSL", "C++", "layout"],
)
def test_tensors_of_tensor_memory_are_read_as_they_are_printed(text):
    assert coalesce(parse(text)) == coalesce(sm100.tmem_accumulator(128, 256).layout)
    assert parse("UMMA::DescriptorIterator o (_1,_1,_4):(_0,_0,_2)") == parse("(1,1,4):(0,0,2)")


def test_mmas_are_known_by_name():
    name = "SM100_MMA_MXF8F6F4_2x1SM_SS<float_e4m3_t,float_e5m2_t,float,float_ue8m0_t,256,64,K,MN>"
    assert parse(name) == sm100.umma_traits(
        "mxf8f6f4", 256, 64, a_dtype="e4m3", b_dtype="e5m2", b_major="MN", cta_group=2
    )
    assert picture_of(name).title == name


@pytest.mark.parametrize(
    "name", ["SM100_TMEM_LOAD_8dp32b1x", "SM100_UTCCP_1dp_1cta", "SM100_TMEM_LOAD_32dp32b3x", "SM100_MMA_F16_SS<>"]
)
def test_names_of_no_atom_are_refused(name):
    with refuses(LayoutError):
        sm100.traits_named(name)
    with pytest.raises(ParseError):
        parse(name)
