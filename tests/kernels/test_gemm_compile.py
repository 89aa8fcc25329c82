"""The GEMM compiles for sm_90a with no GPU, and its PTX and cubin hold what was meant."""

import dataclasses
from functools import cache

import pytest

from tests.messages import refuses

pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = [pytest.mark.integration, pytest.mark.dsl]

from cutepy.anatomy import protocol  # noqa: E402
from cutepy.frontends.dsl.execution import executing_on  # noqa: E402
from cutepy.host.function import Function  # noqa: E402
from cutepy.kernels.gemm import GemmConfig, GemmSignature, compile_gemm  # noqa: E402
from cutepy.kernels.gemm.inspection import facts  # noqa: E402
from cutepy.runtime.dtypes import DTYPES  # noqa: E402
from cutepy.runtime.host_calls import Backend  # noqa: E402


def config(a="float16", b=None, out="float16", majors="k k row", c=None, batch_modes=0, **tile):
    a_major, b_major, out_major = majors.split()
    c_dtype, c_major = c.split() if c else (None, None)
    signature = GemmSignature.standard(
        a_dtype=a,
        b_dtype=b or a,
        out_dtype=out,
        a_major=a_major,
        b_major=b_major,
        out_major=out_major,
        c_dtype=c_dtype,
        c_major=c_major,
        batch_modes=batch_modes,
    )
    return GemmConfig(signature=signature, **({"tile_m": 128, "tile_n": 256, "warpgroups": 2} | tile))


CONFIGS = {
    "half": config(cluster_m=2),
    "mn-major": config("bfloat16", out="bfloat16", majors="mn mn col"),
    "one warpgroup": config(majors="k mn row", tile_m=64, tile_n=96, warpgroups=1, stages=3, cluster_n=2),
    "8-bit": config("float8_e4m3fn", "float8_e5m2", out="bfloat16", tile_n=128, cluster_m=2, cluster_n=2),
    "tf32": config("float32", out="float32", tile_n=128, cluster_m=2),
    "integers": config("int8", "uint8", out="int32", tile_n=96, tile_m=64, warpgroups=1),
    "two rows of MMAs": config("bfloat16", out="float32", majors="mn k row", tile_m=256, tile_n=64),
    "with c": config(c="float32 col", out="float32", tile_n=128, cluster_m=2),
    "with 16-bit c": config(c="float16 row", majors="k k col", stages=3),
    "batch": config(batch_modes=1, cluster_m=2),
    "batch of two modes with c": config(c="float32 row", out="float32", tile_n=128, batch_modes=2),
}


@cache
def compiled(name):
    """Compile each configuration once."""
    return compile_gemm(CONFIGS[name])


def edited(function, change):
    """Give a compiled function whose PTX says something else: by pairs of the text that is and the text instead."""
    ptx = function.ptx
    for old, new in zip(change[::2], change[1::2], strict=True):
        ptx = ptx.replace(old, new)
    program = dataclasses.replace(function.program, ptx=ptx)
    return Function(function.__name__, program, function.parameters, function.metadata)


SIMILAR = "tf32", "with 16-bit c", "batch"  # each compiles for seconds, and others have their mechanisms


@pytest.fixture(params=[pytest.param(n, marks=pytest.mark.deep) if n in SIMILAR else n for n in CONFIGS])
def kernel(request):
    """Give (config, compiled)."""
    return CONFIGS[request.param], compiled(request.param)


def test_the_compiled_code_is_what_the_configuration_means(kernel):
    """Instruction, transposes, whole descriptors, barriers, shared and local memory."""
    chosen, code = kernel
    for fact in facts(chosen, code):
        assert fact.found == fact.meant, fact.name


def test_the_facts_are_spelled_as_expected():
    """The expected facts of one kernel, written once more by hand."""
    assert {fact.name: fact.meant for fact in facts(CONFIGS["half"], compiled("half"))} == {
        "wgmma": "m64n256k16.f32.f16.f16",
        "transposes of A, B": "(0, 0)",
        "descriptors of A": "0x4000004000010000, 0x4000004000010002, 0x4000004000010004, 0x4000004000010006, "
        "0x4000004000010400, 0x4000004000010402, 0x4000004000010404, 0x4000004000010406",
        "descriptors of B": "0x4000004000011000, 0x4000004000011002, 0x4000004000011004, 0x4000004000011006, "
        "0x4000004000011800, 0x4000004000011802, 0x4000004000011804, 0x4000004000011806",
        "MMAs that accumulate": "01111111",
        "mbarrier arrivals": "[1, 16, 1, 16, 1, 16, 1, 16]",
        "bytes of a stage": "[49152]",
        "shared memory": "229440 bytes",
        "stack frame": "0 bytes",
    }


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("wgmma", ("m64n256k16.f32.f16.f16", "m64n256k16.f32.bf16.bf16")),
        ("transposes of A, B", (", p, 1,  1, 0, 0;", ", p, 1,  1, 1, 0;")),
        ("descriptors of A", ("4611686293305360384", "4611686293305294848")),
        ("mbarrier arrivals", ("229376], %r60;", "229376], %r61;")),
        ("bytes of a stage", ("49152", "24576")),
        ("MMAs that accumulate", ("setp.ne.b32 p", "setp.eq.b32 p")),
    ],
)
def test_a_fact_that_does_not_hold_is_seen(name, change):
    kernel = compiled("half")
    assert change[0] in kernel.ptx
    changed = edited(kernel, change)
    broken = [fact.name for fact in facts(CONFIGS["half"], changed) if not fact.holds]
    assert name in broken
    assert all(fact.holds for fact in facts(CONFIGS["half"], kernel))


def meant_steps(chosen):
    """Write down the protocol of a kernel in the order of its text, each loop once, as it first runs."""
    ring, c_ring = ring_addresses(chosen)
    single = chosen.cluster_m * chosen.cluster_n == 1
    yield [("mbarrier.init",)] * 2 * (chosen.stages + chosen.c_stages)
    yield [("fence.mbarrier_init",)]
    yield [("bar.sync", 0)] if single else [("barrier.cluster.arrive",), ("barrier.cluster.wait",)]
    yield [("setmaxnreg.dec", 40)] * (chosen.warpgroups > 1)
    load = f"cp.async.bulk.tensor.{rank(chosen)}d.shared"
    yield from meant_load(ring, chosen.stage_bytes, 1, load)
    yield from meant_load(c_ring, c_bytes(chosen), chosen.subtiles, load)
    yield [("setmaxnreg.inc", 232)] * (chosen.warpgroups > 1)
    mmas = chosen.tile_m // (64 * chosen.warpgroups) * chosen.tile_k * chosen.signature.operand_bits // 256
    for (full, _), first in zip(ring[:2], (True, False), strict=True):
        yield [("mbarrier.try_wait.parity", full, 0), ("wgmma.fence",)]
        yield [("wgmma.mma_async",)] * mmas
        yield [("wgmma.commit_group",)]
        # In the loop all but the youngest group have finished, so the stage of the first is given back.
        yield [] if first else [("wgmma.wait_group", 1), ("mbarrier.arrive", ring[0][1])]
    yield [("wgmma.wait_group", 0), ("mbarrier.arrive", ring[0][1])]
    for index in range(chosen.subtiles):
        if c_ring:
            full, empty = c_ring[index % chosen.c_stages]
            yield [("mbarrier.try_wait.parity", full, index // chosen.c_stages % 2)]
            yield [("fence.proxy.async",), ("bar.warp", -1), ("mbarrier.arrive", empty)]
        yield [("fence.proxy.async",), ("bar.sync", 1, 128 * chosen.warpgroups)]
        yield [(f"cp.async.bulk.tensor.{rank(chosen)}d.global", *corner) for corner in meant_boxes(chosen, index)]
        yield [("cp.async.bulk.commit_group",), ("cp.async.bulk.wait_group.read", chosen.epi_stages - 2)]
    yield [("cp.async.bulk.wait_group.read", 0)]


def rank(chosen):
    return 2 + chosen.signature.batch_modes


def meant_load(ring, stage_bytes, loads, load):
    """Fill the stages of a ring, then wait for all to be given back."""
    for index in range(loads if ring else 0):
        full, empty = ring[index % len(ring)]
        # The first round waits for the phase before the first, which is over: parity 1.
        yield [("mbarrier.try_wait.parity", empty, 1 - index // len(ring) % 2)]
        yield [("mbarrier.arrive.expect_tx", full, stage_bytes), (load, full)]
    yield [("mbarrier.try_wait.parity", empty, 1) for _, empty in ring]


def meant_boxes(chosen, index):
    """Give the corners in global memory, of the first product, of a subtile's boxes, at most a swizzle span wide."""
    rows, columns = chosen.epi_tile
    down, across = divmod(index, chosen.tile_n // columns)
    corner, extents = (down * rows, across * columns), (rows, columns)
    mode = 1 if chosen.signature.out_major == "row" else 0
    box = min(extents[mode], 1024 // chosen.signature.out_bits)
    first = (0,) * chosen.signature.batch_modes
    return [(corner[mode] + start, corner[1 - mode], *first) for start in range(0, extents[mode], box)]


def c_bytes(chosen):
    return chosen.epi_tile[0] * chosen.epi_tile[1] * c_bits(chosen) // 8


def c_bits(chosen):
    return sum(DTYPES[kind.dtype].bits for kind in chosen.signature.added)


def ring_addresses(chosen):
    """Give the addresses of each stage's (full, empty) barriers, for the operands and for C."""
    start = chosen.smem_bytes - 16 * (chosen.stages + chosen.c_stages)
    rings = []
    for stages in (chosen.stages, chosen.c_stages):
        rings.append([(start + 8 * stage, start + 8 * (stages + stage)) for stage in range(stages)])
        start += 16 * stages
    return rings


def found_steps(code):
    """Shorten the steps: an init without its operands, a store without its source, boxes of one load as one."""
    steps = []
    for name, operands in protocol.steps(code.ptx, thread=128):
        if name == "mbarrier.init":
            operands = ()
        elif name.startswith("cp.async.bulk.tensor") and name.endswith("d.global"):
            operands = operands[:-1]
        elif name.startswith("cp.async.bulk.tensor"):
            operands = operands[-1:]
            if steps[-1] == (name, *operands):
                continue
        steps.append((name, *operands))
    return steps


def test_every_step_of_the_protocol_is_there_in_order(kernel):
    """Waits with their barriers and parities, arrivals, fences, counts of groups left open, corners of the stores."""
    chosen, code = kernel
    assert found_steps(code) == [step for steps in meant_steps(chosen) for step in steps]


@pytest.mark.parametrize(
    "change",
    [
        ("wgmma.wait_group.sync.aligned \t1;", "wgmma.wait_group.sync.aligned \t2;"),
        ("cp.async.bulk.wait_group.read \t2;", "cp.async.bulk.wait_group.read \t3;"),
        ("cp.async.bulk.wait_group.read \t2;", "cp.async.bulk.wait_group \t2;"),
        ("bar.sync \t1, 256;", ""),
        ("bar.sync \t1, 256;", "bar.sync \t1, 128;"),
        ("barrier.cluster.wait;", "bar.sync \t0;"),
        ("mbarrier.try_wait", "mbarrier.test_wait", ", 10000000;", ";"),  # a test takes no time
        ("fence.proxy.async.shared::cta", "fence.proxy.alias"),
    ],
)
def test_a_step_that_differs_is_seen(change):
    kernel = compiled("half")
    assert change[0] in kernel.ptx
    assert found_steps(edited(kernel, change)) != found_steps(kernel)


def test_the_copies_and_matrices_are_of_the_kinds_meant(kernel):
    chosen, code = kernel
    count = protocol.opcodes(code.ptx)

    def total(*parts):
        return sum(n for opcode, n in count.items() if all(part in opcode for part in parts))

    multicasts = (chosen.cluster_n > 1) + (chosen.cluster_m > 1)
    assert (total(".multicast::cluster") > 0) == (multicasts > 0)
    stores = total("stmatrix")
    assert (stores > 0) == (chosen.signature.out_bits == 16)
    assert total("stmatrix", ".trans") == (stores if chosen.signature.out_major == "col" else 0)
    loads = total("ldmatrix")
    assert (loads > 0) == (c_bits(chosen) == 16)


def test_nothing_spills_and_nothing_is_in_local_memory(kernel):
    chosen, code = kernel
    (resources,) = code.resources
    assert resources.kernel.startswith(chosen.name)
    assert resources.stack_bytes == resources.spill_store_bytes == resources.spill_load_bytes == 0
    assert ".local" not in code.ptx
    assert resources.registers * chosen.threads <= 64 * 1024


@pytest.mark.parametrize(
    "options",
    [
        {"split_k": 4, "tile_n": 128},
        {"consumers": 2, "warpgroups": 1, "tile_n": 192},
        pytest.param({"consumers": 2, "warpgroups": 1, "tile_m": 64}, marks=pytest.mark.deep),
    ],
    ids=["K split", "in turns", "in turns, 64 rows"],
)
def test_no_schedule_spills(options):
    chosen = config(**options)
    code = compile_gemm(chosen)
    (resources,) = code.resources
    assert resources.stack_bytes == resources.spill_store_bytes == resources.spill_load_bytes == 0
    assert ".local" not in code.ptx


def test_a_kernel_with_too_many_accumulators_is_seen_to_spill(monkeypatch):
    """256 x 256 outputs take 256 registers a thread: configuration and main loop refuse, and the cubin shows why."""
    refused = object.__new__(GemmConfig)
    fields = dataclasses.asdict(CONFIGS["half"]) | {"signature": CONFIGS["half"].signature}
    for name, value in (fields | {"tile_m": 256, "stages": 2}).items():
        object.__setattr__(refused, name, value)
    with refuses(ValueError):
        dataclasses.replace(CONFIGS["half"], tile_m=256)
    monkeypatch.setattr("cutepy.device.product.check_accumulators", lambda *_: None)
    (resources,) = compile_gemm(refused).resources
    assert resources.stack_bytes > 0
    assert resources.spill_store_bytes > 0


def test_the_dsl_lays_out_shared_memory_as_cutepy_does(kernel):
    """Both languages print one layout for A and B, mode for mode."""
    import cutlass.cute as cute
    from cutlass.cute.nvgpu import warpgroup

    from cutepy.dsl.element_types import element_type

    chosen, _ = kernel
    signature = chosen.signature
    printed = []

    @cute.jit
    def build():
        for dtype, extent, major in (
            (signature.a_dtype, chosen.tile_m, signature.a_major),
            (signature.b_dtype, chosen.staged_n, signature.b_major),
        ):
            contiguous = (chosen.tile_k if major == "k" else extent) * signature.operand_bits // 8
            span = next(span for span in (128, 64, 32) if contiguous % span == 0)
            kind = warpgroup.SmemLayoutAtomKind[f"{major.upper()}_SW{span}"]
            atom = warpgroup.make_smem_layout_atom(kind, element_type(dtype))
            order = (0, 1, 2) if major == "k" else (1, 0, 2)
            printed.append(str(cute.tile_to_shape(atom, (extent, chosen.tile_k, chosen.stages), order=order)))

    build()
    ours = [str(layout) for layout in (chosen.a_layout, chosen.b_layout)]
    swizzled = f" o smem_ptr[{signature.operand_bits}b](unset) o "
    assert [text.replace("S<", "Sw<").replace(" o 0 o ", swizzled) for text in printed] == ours


@pytest.mark.parametrize(
    ("name", "extents", "sm_count", "grid"),
    [
        ("half", (8192, 8192), 132, (132, 1, 1)),
        ("half", (8192, 8192), 131, (130, 1, 1)),
        ("half", (300, 500), 132, (8, 1, 1)),
        ("one warpgroup", (8192, 8192), 132, (66, 2, 1)),
        ("8-bit", (8192, 8192), 132, (66, 2, 1)),
        ("mn-major", (8192, 8192), 132, (132, 1, 1)),
        ("mn-major", (129, 257), 132, (4, 1, 1)),
    ],
)
def test_the_grid_has_a_cta_for_each_sm_or_for_each_tile(name, extents, sm_count, grid):
    """A grid of more CTAs than SMs would wait for the persistent ones before it."""
    launched = []

    class Recorder(Backend):
        def launch(self, request):
            launched.append((request.grid, request.cluster, request.block, request.dynamic_smem_bytes))

        def adopt(self, tensor):
            pass

    chosen, (m, n) = CONFIGS[name], extents
    signature = chosen.signature
    with executing_on(Recorder()):
        a = empty(m, 512, signature.a_dtype, signature.a_major)
        b = empty(n, 512, signature.b_dtype, signature.b_major)
        d = empty(m, n, signature.out_dtype, signature.out_major)
        compiled(name)(a, b, None, d, sm_count, None)
    assert launched == [(grid, (chosen.cluster_m, chosen.cluster_n, 1), (chosen.threads, 1, 1), chosen.smem_bytes)]


def empty(rows, columns, dtype, major):
    """Give a matrix whose memory nobody reads, with a pitch that TMA takes."""
    import torch

    extents = (rows, columns) if major in ("k", "row") else (columns, rows)
    padded = torch.empty(extents[0], -(-extents[1] // 16) * 16, dtype=getattr(torch, dtype))[:, : extents[1]]
    return padded if major in ("k", "row") else padded.t()


HALVES = {"a_dtype": "float16", "b_dtype": "float16", "out_dtype": "float16"}
EPILOGUES = {
    "bias": {"bias_dtype": "float16"},
    "bias and gelu": {"bias_dtype": "float32", "activation": "gelu"},
    "silu": {"activation": "silu"},
}


@pytest.mark.parametrize(
    "name", [name if name == "bias and gelu" else pytest.param(name, marks=pytest.mark.deep) for name in EPILOGUES]
)
def test_a_bias_is_asked_for_before_the_mmas_and_nothing_spills(name):
    plain = CONFIGS["half"]
    signature = GemmSignature.standard(**HALVES, **EPILOGUES[name])
    chosen = dataclasses.replace(plain, signature=signature)
    function = compile_gemm(chosen)
    (resources,) = function.resources
    assert resources.kernel.startswith(chosen.name)
    assert resources.stack_bytes == 0
    assert resources.registers * chosen.threads <= 64 * 1024
    loads = [place for place, line in enumerate(function.ptx.splitlines()) if "ld.global" in line]
    # Two values of each eight columns, for each subtile of the tile; those of the first before the first MMA.
    columns = chosen.epi_n // 4 if signature.graph.operands else 0
    assert len(loads) == columns * chosen.subtiles
    first = next(place for place, line in enumerate(function.ptx.splitlines()) if "wgmma.mma_async" in line)
    assert sum(place < first for place in loads) == columns


@pytest.mark.parametrize("tile", [{}, {"tile_m": 256, "tile_n": 64}, {"epi_n": 16, "cluster_m": 2}])
def test_every_subtile_gets_the_bias_of_its_columns(tile):
    """Small integers: every sum is exact, so a bias of the wrong column shows."""
    import torch

    import cutepy

    plain = config(out="float32", **tile)
    signature = GemmSignature.standard(**HALVES | {"out_dtype": "float32"}, bias_dtype="float32", activation="relu")
    function = compile_gemm(dataclasses.replace(plain, signature=signature))
    torch.manual_seed(3)
    a, b = (torch.randint(-3, 4, (rows, 72)).half() for rows in (140, 260))
    bias, out = torch.arange(260.0) - 100, torch.empty(140, 260)
    with cutepy.simulate():
        function(a, b, None, out, 132, bias)
    assert torch.equal(out, (a.float() @ b.float().t() + bias).relu())
