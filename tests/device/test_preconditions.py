"""Preconditions of blocks are checked in the trace: the kernel of `cutepy new kernel`, with an edit or two."""

import importlib.util
import itertools
import sys
from functools import partial

import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = pytest.mark.dsl

import cutepy  # noqa: E402
from cutepy.cli.new import write_kernel  # noqa: E402
from cutepy.device.pipeline import MixedRing, RewrittenRing, StoredRing, TmaRing  # noqa: E402
from cutepy.device.staging import contiguous_mode  # noqa: E402
from cutepy.layouts import Layout  # noqa: E402

NUMBERS = itertools.count()


@pytest.fixture
def kernel_of(tmp_path, monkeypatch):
    """Give the new kernel's operation once it has been edited, by pairs of old and new text."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def make(*edits):
        name = f"edited_kernel_{next(NUMBERS)}"
        file, _ = write_kernel(name, tmp_path)
        text = file.read_text()
        for old, new in edits:
            assert old in text
            text = text.replace(old, new)
        file.write_text(text)
        importlib.invalidate_caches()
        module = importlib.import_module(name)
        monkeypatch.delitem(sys.modules, name)
        return getattr(module, name), module.reference

    return make


@pytest.mark.parametrize(
    "ring",
    [
        partial(TmaRing, None, 0, 16, 4),
        partial(MixedRing, None, 2, 0, 4, threads=48),
        partial(StoredRing, None, 2, 0, 4, warps=0),
        partial(StoredRing, None, 0, 0, 4, warps=1),
        partial(RewrittenRing, None, 2, 16, 4, warps=0),
        partial(RewrittenRing, None, 2, 0, 4, warps=1),
    ],
    ids=lambda ring: f"{ring.func.__name__}{ring.args[1:]}",
)
def test_rings_that_could_not_count_are_refused(ring):
    with refuses(ValueError):
        ring()


@pytest.mark.parametrize(
    ("shape", "stride", "mode"),
    [
        ((64, 32), (1, 64), 0),
        ((64, 32), (32, 1), 1),
        (((8, 8), 32), ((64, 512), (1)), 1),
        (((8, 8), 32), ((1, 512), 8), 0),
        (((8, 8), (4, 8)), ((4, 32), (1, 256)), 1),
        ((64, 32), (2, 128), None),
        ((64, 32), (1, 1), None),
        ((64, 1), (1, 1), 0),
        ((64, 32), (0, 1), 1),
        ((64, 32), (0, 0), None),
    ],
)
def test_the_contiguous_mode_is_that_whose_steps_are_one_element(shape, stride, mode):
    assert contiguous_mode(Layout(shape, stride)) == mode


def operands():
    torch.manual_seed(1)
    return [torch.randint(-3, 4, shape).half() for shape in ((136, 72), (136, 72), (136,))]


def test_the_kernel_itself_is_right(kernel_of):
    multiply, reference = kernel_of()
    with cutepy.simulate(sanitize=True) as run:
        assert torch.equal(multiply(*operands()), reference(*operands()))
    assert not run.hazards


TYPES = 'wgmma_tiling("float16", "float16",'
TILE, EPILOGUE = "TILE_M, TILE_N, TILE_K, STAGES = 128, 128, 64, 4", "WARPGROUPS = (128, 32), 2, 2"
STAGED_D = 'shared["sD"], (TILE_M, TILE_N))'
TELLS_CLUSTERS = importlib.util.find_spec("cutlass.cutlass_dsl._launch_facts_metadata") is not None
BLOCK = "block=(PRODUCERS + CONSUMERS, 1, 1)"
CLUSTER = [(BLOCK, f"{BLOCK}, cluster=(1, 2, 1)"), ("mode=[3]))", "mode=[3]), cluster_mn=(1, 2))")]
STORE = "self.out.store(rC, index % EPI_STAGES, target, index)"
INT8 = [
    (TYPES, 'wgmma_tiling("int8", "int8",'),
    ("StagedTile((TILE_M, TILE_K), STAGES, bits=16)", "StagedTile((TILE_M, 2 * TILE_K), STAGES, bits=8)"),
    ("StagedTile((TILE_N, TILE_K), STAGES, bits=16)", "StagedTile((TILE_N, 2 * TILE_K), STAGES, bits=8)"),
    ("(TILE_M, TILE_K))", "(TILE_M, 2 * TILE_K))"),
    ("(TILE_N, TILE_K))", "(TILE_N, 2 * TILE_K))"),
    ("sA=cutlass.Float16, sB=cutlass.Float16", "sA=cutlass.Int8, sB=cutlass.Int8"),
    (
        'TensorSpec("float16", shape, divisibility={shape[1]: 8}',
        'TensorSpec("int8", shape, divisibility={shape[1]: 16}',
    ),
    ('| {"bias"', '| {"d": cutepy.TensorSpec("float16", ("m", "n"), divisibility={"n": 8}), "bias"'),
    ("d = a.new_empty(", "d = bias.new_empty("),
]


@pytest.mark.parametrize(
    ("edits", "error", "said"),
    [
        (
            [(TYPES, 'wgmma_tiling("bfloat16", "bfloat16",')],
            TypeError,
            "stages of A must hold what the MMAs multiply, BFloat16, got Float16; make the MMAs for Float16",
        ),
        ([(TYPES, 'wgmma_tiling("float8_e4m3fn", "float8_e4m3fn",')], TypeError, "Float8E4M3FN, got Float16"),
        ([(TYPES, 'wgmma_tiling("int8", "int8",')], TypeError, "Int8, got Float16"),
        (
            [
                ("out.tile, 1)", "make_subtile((128, 64), 2, tidx), 1)"),
                ("import to_cute\n", "import to_cute\nfrom cutepy.device.fragment import make_subtile\n"),
            ],
            ValueError,
            "made for subtiles of 32 registers a thread, got 16; make the AccumulatorTile and the TileStore for one",
        ),
        (
            [(STAGED_D, STAGED_D.replace("TILE_N", "TILE_N // 2"))],
            ValueError,
            r"the extents of the accumulators, 128 x 128, got 128 x 64; make them with \(128, 128\)",
        ),
        (
            [(STAGED_D, STAGED_D.replace("TILE_N", "2 * TILE_N"))],
            ValueError,
            "extents of the accumulators, 128 x 128, got 128 x 256",
        ),
        (
            [
                ("StagedTile(EPI_TILE, EPI_STAGES, bits=16)", "StagedTile(EPI_TILE, EPI_STAGES, bits=32)"),
                ("sD=cutlass.Float16", "sD=cutlass.Float32"),
            ],
            TypeError,
            "stages must hold the tensor's element type, Float16, got Float32; stage Float16",
        ),
        (
            [("sB=sm90.StagedTile((TILE_N, TILE_K)", "sB=sm90.StagedTile((TILE_N, TILE_K // 2)")],
            ValueError,
            "a TMA copy moves one stage, of 128 x 32 elements, got a tile of 128 x 64; use one for both",
        ),
        (
            [
                ("sB=sm90.StagedTile((TILE_N, TILE_K)", "sB=sm90.StagedTile((TILE_N, TILE_K // 2)"),
                ("(TILE_N, TILE_K))", "(TILE_N, TILE_K // 2))"),
            ],
            ValueError,
            "a stage of A and one of B must have the same extent along K, got 64 and 32",
        ),
        (
            [("(TILE_M, TILE_K))", "(TILE_M, TILE_K // 2))")],
            ValueError,
            "a tile must be whole stages of 128 x 64 elements, got 128 x 32; use a multiple",
        ),
        ([("sA.tile, 1)", "(64, 64), 1)")], ValueError, "of 128 x 64 elements, got a tile of 64 x 64"),
        ([("sD.tile)", "(128, 64))")], ValueError, "of 128 x 32 elements, got a tile of 128 x 64"),
        (
            [("d.staged, 1,", "d.staged, 0,")],
            ValueError,
            "one contiguous mode, 1 for rows, got 1 of the stages and 0; stage the tile with contiguous_mode=0",
        ),
        (
            [("StagedTile((TILE_M, TILE_K), STAGES, bits=16)", "StagedTile((TILE_M, TILE_K), STAGES, 16, 0)")],
            ValueError,
            "the MMAs read A K-major, got stages whose contiguous mode is 0, MN-major",
        ),
        (
            [
                ("StagedTile((TILE_M, TILE_K), STAGES, bits=16)", "StagedTile((TILE_M, TILE_K), STAGES, 16, 0)"),
                ("to_tiled_mma(TILING)", 'to_tiled_mma(TILING, "MN")'),
            ],
            ValueError,
            "argument a: stride 0 is 72 elements, and TMA needs 1",
        ),
        (
            [
                (
                    "sD=sm90.StagedTile(EPI_TILE, EPI_STAGES, bits=16)",
                    "sD=sm90.StagedTile(EPI_TILE, EPI_STAGES, 16, 0)",
                ),
                ("d.staged, 1,", "d.staged, 0,"),
            ],
            ValueError,
            "argument d: stride 0 is 136 elements, and TMA needs 1",
        ),
        (
            [("to_tiled_mma(TILING)", 'to_tiled_mma(TILING, "MN")')],
            ValueError,
            "the MMAs read A MN-major, got stages whose contiguous mode is 1, K-major",
        ),
        (
            [("SmemArray(2 * STAGES, bits=64)", "SmemArray(2 * STAGES - 1, bits=64)")],
            ValueError,
            r"barriers was planned as SmemArray\(count=7, .*, and a ring of 4 stages needs 8 elements of 64 bits; plan",
        ),
        (
            [("SmemArray(2 * STAGES, bits=64)", "SmemArray(2 * STAGES, bits=32)")],
            ValueError,
            r"barriers was planned as SmemArray\(count=8, .*, and a ring of 4 stages needs 8 elements of 64 bits",
        ),
        (
            [("sA.tile, 1)", "sA.tile, 2)")],
            ValueError,
            r"make_load made the copy with multicast, and its tiles are shared by 1 CTA; give it as many as the ring ",
        ),
        (
            [
                ("consumer_warps=CONSUMERS // 32)", "consumer_warps=CONSUMERS // 32, cluster_mn=(1, 2))"),
                ("a.loads()", "a.loads(ring, 1)"),
                *CLUSTER,
            ],
            ValueError,
            "make_load made the copy without multicast, and its tiles are shared by 2 CTAs",
        ),
        (
            [("sA.tile, 1)", "sA.tile, 3)")],
            ValueError,
            "a tile that 3 CTAs share by multicast must have equal parts of whole 128 bytes, got 128 lines of 128",
        ),
        (
            [("sA.tile, 1)", "sA.tile, 2)"), ("a.loads()", "a.loads(ring, 1)"), *CLUSTER],
            ValueError,
            "make_load made the copy with multicast, and its tiles are shared by 1 CTA",
        ),
        (
            [("consumer_warps=CONSUMERS // 32)", "consumer_warps=CONSUMERS // 32, cluster_mn=(1, 2))")],
            ValueError,
            r"a ring was made for clusters of 1 x 2 CTAs, got a launch with cluster=\(1, 1, 1\); use one for both",
        ),
        (
            [("mode=[3]))", "mode=[3]), parts=2)")],
            ValueError,
            r"a scheduler was made for clusters of 1 x 1 x 2 CTAs, got a launch with cluster=\(1, 1, 1\)",
        ),
        (
            CLUSTER[:1],
            ValueError,
            r"a scheduler was made for clusters of 1 x 1 x 1 CTAs, got a launch with cluster=\(1, 2",
        ),
        (
            [(BLOCK, "block=(PRODUCERS + CONSUMERS - 128, 1, 1)")],
            ValueError,
            r"threads 128 to 383 need a CTA of 384, got one of 256; launch it with block=\(384, 1, 1\)",
        ),
        (
            [("128 * WARPGROUPS, 128 ", "128 * WARPGROUPS, 96 ")],
            ValueError,
            "a warpgroup has 128 threads, the first a multiple of so many, got 256 from 96 on; use multiples of 128",
        ),
        (
            [
                (BLOCK, "block=(128, 1, 1)"),
                ("roles.warpgroup_thread(PRODUCERS, CONSUMERS)", "cute.arch.thread_idx()[0]"),
            ],
            ValueError,
            "the MMAs run on 256 threads, got a CTA of 128; launch it with 256",
        ),
        (
            [(STORE, STORE.replace("target, index", "target, index + 1"))],
            ValueError,
            "subtile 1 .* stage 1 of 2, in turn,",
        ),
        ([(STORE, STORE.replace("target, index", "target, 4 + index"))], IndexError, "subtile must be 0 to 3, got 4"),
        ([(STORE, STORE.replace("EPI_STAGES", "EPI_STAGES - 1"))], IndexError, "stage must be 0 to 1, got -1"),
        ([(STORE, STORE.replace(" % EPI_STAGES", ""))], IndexError, "stage must be 0 to 1, got 2"),
        ([("work.k[index]), state.index", "work.k[index]), STAGES")], IndexError, "stage must be 0 to 3, got 4"),
        (
            [(EPILOGUE, EPILOGUE.replace("(128, 32), 2", "(128, 32), 3"))],
            ValueError,
            "a tile of 4 subtiles can't begin with stage 0 of 3 .*; use a number of stages that divides 4, or count",
        ),
        (
            [("self.sA.load((work.row, work.k[index])", "self.sA.load((work.row,)")],
            ValueError,
            r"a tile is at \(row, column, batch...\), 2 numbers, got 1",
        ),
        (
            [('copies[0], tensors[0], shared["sA"]', 'copies[2], tensors[0], shared["sA"]')],
            TypeError,
            "loads need a copy that loads, got one that stores; make it with make_load",
        ),
        (
            [('copies[2], tensors[2], shared["sD"]', 'copies[0], tensors[2], shared["sD"]')],
            TypeError,
            "a store needs a copy that stores, got one that loads; make it with make_store",
        ),
        (
            [("target.origin(index)", "self.bias.tile.origin(index)")],
            IndexError,
            "subtile must be 0, got 1",
        ),
        (
            [("rC[register] = cute.arch.fmax(rC[register], 0.0)", "self.out.tile.coordinate(0, 16 + register)")],
            IndexError,
            "register must be 0 to 15, got 16",
        ),
        (
            [("consumer_warps=CONSUMERS // 32", "consumer_warps=CONSUMERS // 64")],
            ValueError,
            "a ring must wait for all warps that read its stages, 8 of the MMAs at least, got consumer_warps=4",
        ),
        (
            [("consumer_warps=CONSUMERS // 32", "consumer_warps=CONSUMERS // 16")],
            ValueError,
            "consumer_warps must be at most 12, the warps of a CTA of 384 threads, got 16",
        ),
        (INT8, TypeError, "registers of a subtile must be Float32, got Int32; convert them first"),
        ([('BARRIERS["store"]', "0")], ValueError, "a named barrier must be 1 to 15, 0 being .*, got 0; rules.named"),
        ([('BARRIERS["store"]', "16")], ValueError, "a named barrier must be 1 to 15, .*, got 16"),
        (
            [(TILE, TILE.replace("128, 128, 64, 4", "192, 256, 64, 3")), (EPILOGUE, "WARPGROUPS = (192, 32), 2, 3")],
            ValueError,
            "192x256 accumulators over 3 warpgroups take 128 registers .* exceed the 160",
        ),
    ],
)
def test_what_blocks_need_of_each_other_is_said_in_a_line(kernel_of, edits, error, said):
    if "got a launch with cluster" in said and not TELLS_CLUSTERS:
        pytest.skip("this version of the DSL doesn't say what clusters a kernel is launched with")
    multiply, _ = kernel_of(*edits)
    a, b, bias = operands()
    given = (a.char(), b.char(), bias) if edits is INT8 else (a, b, bias)
    with cutepy.simulate(), refuses(error):
        multiply(*given)
