"""Triton's encodings are the linear layouts that Triton makes of them: recorded from Triton 3.9, and asked anew."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import assume, given, settings, strategies as st

from cutepy.layouts import LayoutError, ParseError, parse, parse_all, sm90, tile_to_shape, to_linear
from cutepy.layouts.linear import LinearLayout, parse_linear
from cutepy.layouts.linear.triton_encodings import cga_of_counts
from tests.messages import refuses

RECORDS = json.loads(Path(__file__).with_name("triton_encodings.json").read_text())
BLOCKED = "#ttg.blocked<{sizePerThread = [1, 8], threadsPerWarp = [4, 8], warpsPerCTA = [4, 1], order = [1, 0]}>"
MMA = "#ttg.nvidia_mma<{versionMajor = 3, versionMinor = 0, warpsPerCTA = [4, 1], instrShape = [16, 64, 16]}>"
SHARED = "#ttg.nvmma_shared<{swizzlingByteWidth = 128, transposed = false, elementBitWidth = 16}>"
SWIZZLED = "#ttg.swizzled_shared<{vec = 8, perPhase = 1, maxPhase = 8, order = [1, 0]}>"


def recorded(record):
    """Give Triton's layout."""
    return LinearLayout(record["bases"], {f"dim{i}": size for i, size in enumerate(record["shape"])})


def named(record):
    """Name a record by its encoding and shape."""
    return f"{record['gluon'].partition('(')[0]}-{'x'.join(map(str, record['shape']))}"


@pytest.mark.parametrize("record", RECORDS, ids=named)
@pytest.mark.parametrize("spelling", ["mlir", "gluon"])
def test_an_encoding_is_what_triton_makes_of_it(record, spelling):
    text, shape = record[spelling], tuple(record["shape"])
    assert parse_linear(text, shape=shape) == recorded(record)
    assert parse(f"a = {text}", shape=list(shape)) == recorded(record)
    assert [found.value for found in parse_all(f"noise\n{text}\n", shape=shape).values] == [recorded(record)]


@pytest.mark.parametrize("record", RECORDS, ids=named)
def test_a_tensor_s_type_tells_the_shape(record):
    extents, text = "x".join(map(str, record["shape"])), record["mlir"]
    for kind in (
        f"tensor<{extents}x{record['element']}, {text}>",
        f"!ttg.memdesc<{extents}x{record['element']}, {text}, #smem, mutable>",
    ):
        assert parse(kind) == recorded(record)
        with refuses(ParseError):
            parse(kind, shape=record["shape"])


def test_an_accumulator_is_wgmma_s():
    sizes = {"lane": 32, "warp": 4, "register": 32}
    ours = to_linear(sm90.accumulator_layout(64), sizes, {"dim0": 64, "dim1": 64})
    theirs = parse_linear(MMA, shape=(64, 64)).sublayout(["register", "lane", "warp"], ["dim0", "dim1"])
    assert theirs.transpose_ins(list(sizes)) == ours


@pytest.mark.parametrize("shape", [(64, 64), (128, 128), (64, 256)])
def test_shared_memory_of_mmas_is_a_gmma_atom_tiled(shape):
    tiled = tile_to_shape(sm90.gmma_layout_atom("K", "SW128", 16), shape)
    offsets = parse_linear(SHARED, shape=shape).sublayout(["offset"], ["dim0", "dim1"])
    for offset in range(0, shape[0] * shape[1], 37):
        assert tiled(*offsets(offset)) == offset


@pytest.mark.parametrize("rows", [8, 64])
def test_swizzled_shared_memory_is_cute_s_swizzle(rows):
    offsets = parse_linear(SWIZZLED, shape=(rows, 64)).sublayout(["offset"], ["dim0", "dim1"])
    assert offsets.invert() == to_linear(parse(f"Sw<3,3,3> o 0 o ({rows},64):(64,1)"))


def test_counts_of_blocks_are_read_as_earlier_versions_write_them():
    counts = BLOCKED.replace("}>", ", CTAsPerCGA = [2, 1], CTASplitNum = [2, 1], CTAOrder = [1, 0]}>")
    bases = BLOCKED.replace("}>", ", CGALayout = [[1, 0]]}>")
    assert parse_linear(counts, shape=(64, 64)) == parse_linear(bases, shape=(64, 64))
    assert parse_linear(counts.replace("#ttg.", "#triton_gpu."), shape=(64, 64)).bases["block"] == [[32, 0]]
    assert cga_of_counts((2, 2), (2, 1), (0, 1)) == ((1, 0), (0, 0))


def test_aliases_are_read_where_both_are_in_the_text():
    aliases = f"#blocked = {BLOCKED}\n#mma = {MMA}\n"
    whole = parse_linear(f"#ttg.slice<{{dim = 1, parent = {BLOCKED}}}>", shape=(64,))
    sliced = "#ttg.slice<{dim = 1, parent = #blocked}>"
    assert parse_linear(f"#blocked = {BLOCKED}\n{sliced}", shape=(64,)) == whole
    assert parse_linear(f"#one = {sliced}\n#blocked = {BLOCKED}", shape=(64,)) == whole
    assert parse(f"#blocked = {BLOCKED}\ntensor<64xf32, {sliced}>") == whole
    paste = parse_all(f"{aliases}%0: tensor<64x64xf16, #blocked>\n%1: tensor<64x64xf32, #mma>")
    assert [found.value for found in paste.values] == [parse_linear(text, shape=(64, 64)) for text in (BLOCKED, MMA)]
    assert paste.errors == ()


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("#ttg.slice<{dim = 1, parent = #blocked}>", 30),
        ("#a = #ttg.slice<{dim = 0, parent = #a}>", 35),
        (f"#a = {BLOCKED}\n#a = {MMA}\n#ttg.slice<{{dim = 0, parent = #a}}>", len(BLOCKED) + 6),
        (BLOCKED, 0),
        (BLOCKED.replace("order = [1, 0]", "order = [1, 1]"), 0),
        (BLOCKED.replace(", order = [1, 0]", ""), 0),
        (BLOCKED.replace("order", "ordre"), 0),
        (BLOCKED.replace("[4, 8]", "[4, 4]"), 0),
        (BLOCKED.replace("[1, 8]", "[1, 6]"), 0),
        (BLOCKED.replace("[1, 8]", "[1, 8, 1]"), 0),
        (BLOCKED.replace("[1, 8]", "8"), 0),
        (MMA.replace("Major = 3", "Major = 5"), 0),
        (MMA.replace("[16, 64, 16]", "[16, 8]"), 0),
        (SHARED.replace("128", "48"), 0),
        (SHARED.replace("false", "no"), SHARED.index("false")),
        (SHARED.replace("16}", "16, fp4Padded = true}"), 0),
        ("#ttg.amd_mfma<{version = 3}>", 0),
        ("#ttg.padded_shared<[512:+16] {order = [1, 0]}>", 0),
        (f"#ttg.dot_op<{{opIdx = 2, parent = {MMA}, kWidth = 2}}>", 0),
        (f"#ttg.dot_op<{{opIdx = 1, parent = {MMA}, kWidth = 2}}>", 0),
        (f"#ttg.slice<{{dim = 2, parent = {BLOCKED}}}>", 0),
        (f"#ttg.slice<{{dim = 0, parent = {SHARED}}}>", 0),
        (f"({BLOCKED}, 3)", len(BLOCKED) + 4),
    ],
)
def test_what_is_no_encoding_is_refused_at_its_place(text, position):
    for read in (parse, parse_linear):
        with refuses(ParseError) as caught:
            read(text)
        assert caught.value.position == position


@pytest.mark.parametrize(
    ("text", "shape", "message"),
    [
        (BLOCKED, (64,), "has 2 dimensions, the shape 1"),
        (BLOCKED, (64, 48), "power of two"),
        (BLOCKED, (), "has 2 dimensions, the shape 0"),
        (SHARED, (4, 64), "needs 8 rows of 64 elements"),
        (SHARED, (64, 32), "needs 8 rows of 64 elements"),
        (SHARED.replace("false", "true"), (2, 64, 64), "transposed is read with 2 dimensions"),
        ("(4,8):(8,1)", (4, 8), "nothing in the text takes one"),
        ("SM90_64x64x16_F16F16F16_SS", (4, 8), "nothing in the text takes one"),
    ],
)
def test_a_shape_that_does_not_fit_is_refused(text, shape, message):
    for read in (parse, parse_linear, parse_all):
        try:
            paste = read(text, shape=shape)
        except ParseError as error:
            assert re.search(message, str(error))
        else:
            assert re.search(message, str(paste.errors[0]))
    with refuses(TypeError):
        parse(BLOCKED, shape="64,64")


# Asking Triton

exponents = st.integers(0, 6)
sizes = exponents.map(lambda x: 1 << x)


def spread(total, rank):
    """Draw counts along the dimensions whose product is 2**total."""
    return st.lists(st.integers(0, rank - 1), min_size=total, max_size=total).map(
        lambda dims: [1 << dims.count(i) for i in range(rank)]
    )


@st.composite
def clusters(draw, rank):
    """Draw the bases of a cluster's blocks."""
    split, bases = [1] * rank, []
    for dim in draw(st.lists(st.integers(-1, rank - 1), max_size=2)):
        bases.append([split[i] if i == dim else 0 for i in range(rank)])
        if dim >= 0:
            split[dim] *= 2
    return bases


@st.composite
def blocked(draw, rank):
    """Draw a blocked layout of Gluon's."""
    from triton.experimental.gluon.language import _layouts as gluon

    per_thread = draw(st.lists(st.sampled_from([1, 2, 4]), min_size=rank, max_size=rank))
    warps = draw(st.integers(0, 3).flatmap(lambda total: spread(total, rank)))
    order = draw(st.permutations(range(rank)))
    return gluon.BlockedLayout(per_thread, draw(spread(5, rank)), warps, list(order), draw(clusters(rank)))


@st.composite
def mmas(draw, version=None):
    """Draw an accumulator's layout."""
    from triton.experimental.gluon.language import _layouts as gluon

    if draw(st.booleans()) if version is None else version == 2:
        rank = draw(st.sampled_from([2, 3]))
        warps = draw(st.integers(0, 3).flatmap(lambda total: spread(total, rank)))
        return gluon.NVMMADistributedLayout([2, 0], warps, [1, 16, 8][3 - rank :], draw(clusters(rank)))
    warps = [4 * draw(st.sampled_from([1, 2])), draw(st.sampled_from([1, 2]))]
    columns = draw(st.sampled_from([8, 16, 64, 256]))
    return gluon.NVMMADistributedLayout([3, 0], warps, [16, columns, 16], draw(clusters(2)))


@st.composite
def encodings(draw):
    """Draw (a layout of Gluon's, a shape)."""
    from triton.experimental.gluon.language import _layouts as gluon

    from tests.layouts.linear.triton_oracle import to_linear as ask

    kind = draw(st.sampled_from(["blocked", "mma", "slice", "dot", "fma", "shared", "swizzled", "linear"]))
    rank = draw(st.integers(1, 3))
    if kind == "blocked":
        layout = draw(blocked(rank))
    elif kind == "mma":
        layout = draw(mmas())
    elif kind == "slice":
        parent = draw(st.one_of(blocked(max(rank, 2)), mmas()))
        layout = gluon.SliceLayout(draw(st.integers(0, parent.rank - 1)), parent)
    elif kind == "dot":
        parent = draw(mmas())
        index = draw(st.integers(0, 1)) if parent.version[0] == 2 else 0
        layout = gluon.DotOperandLayout(index, parent, draw(st.sampled_from([1, 2, 4, 8])))
    elif kind == "fma":
        layout = gluon.DotOperandLayout(draw(st.integers(0, 1)), draw(blocked(max(rank, 2))), 0)
    elif kind == "shared":
        rank = max(rank, 2)
        width, bits = draw(st.sampled_from([0, 32, 64, 128])), draw(st.sampled_from([8, 16, 32]))
        transposed = rank == 2 and draw(st.booleans())
        layout = gluon.NVMMASharedLayout(width, bits, rank, transposed, False, draw(clusters(rank)))
        return layout, [64 * draw(st.sampled_from([4, 8])) for _ in range(rank)]
    elif kind == "swizzled":
        vec, phase, phases = (draw(st.sampled_from([1, 2, 4, 8])) for _ in range(3))
        layout = gluon.SwizzledSharedLayout(
            vec, phase, phases, list(draw(st.permutations(range(rank)))), draw(clusters(rank))
        )
        return layout, [8 * draw(sizes) for _ in range(rank)]
    else:
        inner = draw(blocked(rank))
        found = ask(inner, [draw(sizes) for _ in range(rank)])
        bases = found.bases
        layout = gluon.DistributedLinearLayout(
            bases["register"], bases["lane"], bases["warp"], bases["block"], list(found.out_dims.values())
        )
    return layout, [draw(sizes) for _ in range(layout.rank)]


@pytest.mark.integration
@settings(deadline=None)
@given(st.data())
def test_triton_makes_the_same_of_random_encodings(data):
    pytest.importorskip("triton.experimental.gluon", reason="needs Triton with Gluon")
    from tests.layouts.linear.triton_oracle import to_linear as ask

    layout, shape = data.draw(encodings())
    try:
        ours = parse_linear(str(layout), shape=shape)
    except LayoutError as error:
        assert "needs 8 rows" in str(error)  # Triton ends the process
        assume(False)
    assert ours == ask(layout, shape)


@pytest.mark.integration
@pytest.mark.parametrize("record", RECORDS, ids=named)
def test_triton_still_makes_of_a_record_what_is_recorded(record, tmp_path):
    pytest.importorskip("triton.experimental.gluon", reason="needs Triton with Gluon")
    from tests.layouts.linear.triton_oracle import of_attribute, to_linear as ask

    layout = of_attribute(record["mlir"], record["shape"], record["element"], tmp_path)
    assert (str(layout), ask(layout, record["shape"])) == (record["gluon"], recorded(record))
