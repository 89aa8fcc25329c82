"""Some CTAs of a launch, over tensors of any size: what they do, what they can't, and offsets beyond 32 bits."""

import time

import numpy as np
import pytest

from cutepy.frontends import load_ptx, simulate
from cutepy.sim import AbsentCtaError, DeadlockError, MemoryAccessError, lazy_tensor
from cutepy.sim.machine.lanes import cluster_order
from cutepy.sim.machine.selected_ctas import in_whole_clusters
from tests.messages import refuses

HEADER = ".version 8.7\n.target sm_90a\n.address_size 64\n"
REGISTERS = ".reg .pred %p<8>; .reg .b32 %r<32>; .reg .b64 %rd<16>;"


def kernel(body, parameters="x", more=""):
    names = ", ".join(f".param .u64 {name}" for name in parameters)
    loads = " ".join(f"ld.param.u64 %rd{n}, [{name}];" for n, name in enumerate(parameters))
    return load_ptx(f"{HEADER}{more}.visible .entry k({names}) {{ {REGISTERS}\n{loads}\n{body}\nret; }}")


# Element (row, column) of a matrix of WIDTH columns, a CTA a row of a tile of 128 columns.
WHERE = """
mov.u32 %r2, %ctaid.x; mov.u32 %r1, %tid.x; mov.u32 %r0, %ctaid.y; mad.lo.u32 %r3, %r0, 128, %r1;
"""
RIGHT = WHERE + "cvt.u64.u32 %rd2, %r3; mad.wide.u32 %rd2, %r2, WIDTH, %rd2; shl.b64 %rd2, %rd2, 2;"
WRAPS = WHERE + "mad.lo.u32 %r4, %r2, WIDTH, %r3; mul.lo.u32 %r4, %r4, 4; cvt.u64.u32 %rd2, %r4;"
STORES = "add.s64 %rd3, %rd0, %rd2; add.u32 %r5, %r2, %r3; st.global.u32 [%rd3], %r5;"
SHAPE = (100_000, 100_096)  # 40 GB of int32


def tile(offset):
    return kernel((offset + STORES).replace("WIDTH", str(SHAPE[1])))


GRID = SHAPE[0], SHAPE[1] // 128


@pytest.mark.parametrize(
    ("grid", "cluster"),
    [((6, 4, 2), (2, 2, 1)), ((5, 3, 1), (1, 1, 1)), ((4, 2, 4), (1, 1, 4)), ((8, 1, 1), (8, 1, 1))],
)
def test_all_that_are_named_one_by_one_are_all(grid, cluster):
    every = [(x, y, z) for x in range(grid[0]) for y in range(grid[1]) for z in range(grid[2])]
    assert in_whole_clusters(every, grid, cluster).tolist() == cluster_order(grid, cluster).tolist()
    for cta in every:
        chosen = in_whole_clusters([cta, tuple(c - e for c, e in zip(cta, grid, strict=True))], grid, cluster).tolist()
        order = cluster_order(grid, cluster).reshape(-1, np.prod(cluster)).tolist()
        linear = cta[0] + grid[0] * (cta[1] + grid[1] * cta[2])
        assert chosen == next(peers for peers in order if linear in peers)


def test_a_tile_at_40_gb_is_written_in_no_time_and_no_memory():
    x = lazy_tensor(SHAPE, "int32")
    start = time.perf_counter()
    launch = tile(RIGHT).launch("k", GRID, 128, (x,), ctas=[(-1, -1), (0, 0)])
    assert time.perf_counter() - start < 5
    assert x[-1, -128:].tolist() == [SHAPE[0] - 1 + SHAPE[1] - 128 + n for n in range(128)]
    assert x[0, :128].tolist() == list(range(128))
    assert not x[-2].any()
    assert launch.absent_ctas == GRID[0] * GRID[1] - 2
    assert launch.stats["instructions"] == 8 * 12  # two CTAs of four warps


def test_an_offset_of_32_bits_that_wraps_writes_elsewhere():
    x = lazy_tensor(SHAPE, "int32")
    with simulate(ctas=[(-1, -1)]):
        tile(WRAPS).launch("k", GRID, 128, (x,))
    assert not x[-1, -128:].any()


def test_one_element_past_the_last_page_is_found():
    x = lazy_tensor(10**10 - 1, "int32")
    last = kernel(
        "mov.u32 %r0, %ctaid.x; mov.u32 %r1, %tid.x; cvt.u64.u32 %rd1, %r1; mad.wide.u32 %rd1, %r0, 1000, %rd1;"
        "shl.b64 %rd1, %rd1, 2; add.s64 %rd1, %rd0, %rd1; st.global.u32 [%rd1], %r1;"
    )
    with refuses(MemoryAccessError):
        last.launch("k", 10**7, 1000, (x,), ctas=[-1])
    last.launch("k", 10**7, 1000, (x,), ctas=[-2])
    assert x[-1999:-999].tolist() == list(range(1000))


def test_a_cluster_comes_whole():
    rank = kernel(
        "mov.u32 %r0, %ctaid.x; mul.wide.u32 %rd1, %r0, 4; add.s64 %rd1, %rd0, %rd1; mov.u32 %r1, %cluster_ctarank;"
        "add.u32 %r1, %r1, 1; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; st.global.u32 [%rd1], %r1;"
    )
    x = np.zeros(12, np.uint32)
    rank.launch("k", 12, 32, (x,), cluster=4, ctas=[6])
    assert x.tolist() == [0, 0, 0, 0, 1, 2, 3, 4, 0, 0, 0, 0]


# CTA 0 sets a flag, and each other CTA waits for it.
FLAG = kernel("""
mov.u32 %r0, %ctaid.x; setp.ne.u32 %p0, %r0, 0; @%p0 bra WAIT;
mov.u32 %r1, 1; st.release.gpu.global.u32 [%rd0], %r1; bra DONE;
WAIT: ld.acquire.gpu.global.u32 %r1, [%rd0]; setp.eq.u32 %p1, %r1, 0; @%p1 bra WAIT;
DONE: mul.wide.u32 %rd1, %r0, 4; add.s64 %rd1, %rd0, %rd1; st.global.u32 [%rd1], %r1;
""")


def test_a_wait_for_an_absent_cta_is_said_to_be_one():
    x = np.zeros(8, np.uint32)
    with refuses(AbsentCtaError):
        FLAG.launch("k", 8, 32, (x,), ctas=[3])
    FLAG.launch("k", 8, 32, (x,), ctas=[3, 0])
    assert x.tolist() == [1, 0, 0, 1, 0, 0, 0, 0]
    x[:] = 0
    x[0] = 1  # or as the absent CTA would have set it
    FLAG.launch("k", 8, 32, (x,), ctas=[3])
    assert x.tolist() == [1, 0, 0, 1, 0, 0, 0, 0]


@pytest.mark.parametrize(
    "body",
    [
        "mbarrier.init.shared.b64 [%r0], 2; mbarrier.arrive.shared.b64 %rd1, [%r0];"
        "WAIT: mbarrier.try_wait.parity.shared.b64 %p0, [%r0], 0; @!%p0 bra WAIT;",
        "mov.u32 %r1, 0; st.shared.u32 [%r0], %r1; WAIT: ld.volatile.shared.u32 %r1, [%r0];"
        "setp.eq.u32 %p0, %r1, 0; @%p0 bra WAIT;",
    ],
    ids=["an mbarrier", "a word of shared memory"],
)
def test_a_deadlock_within_a_cta_is_a_plain_one(body):
    stuck = kernel(f"mov.u32 %r0, bar0; {body}", more=".shared .align 8 .b64 bar0;\n")
    with pytest.raises(DeadlockError) as caught:
        stuck.launch("k", 8, 1, (np.zeros(1),), ctas=[3])
    assert not isinstance(caught.value, AbsentCtaError)


def test_a_grid_that_waits_for_itself_lacks_those_that_were_not_chosen():
    barrier = kernel("""
    mov.u32 %r2, %nctaid.x; atom.add.release.gpu.global.u32 %r1, [%rd0], 1;
    WAIT: ld.volatile.global.u32 %r1, [%rd0]; setp.lt.u32 %p1, %r1, %r2; @%p1 bra WAIT;
    """)
    with pytest.raises(AbsentCtaError):
        barrier.launch("k", 8, 1, (np.zeros(1, np.uint32),), ctas=[3, 4])


@pytest.mark.parametrize(
    "ctas",
    [
        [8],
        [(0, 1)],
        [],
        [(1, 2, 3, 4)],
    ],
)
def test_what_is_no_cta_is_refused(ctas):
    with refuses(ValueError):
        FLAG.launch("k", 8, 32, (np.zeros(8, np.uint32),), ctas=ctas)
    with refuses(TypeError):
        FLAG.launch("k", 8, 32, (np.zeros(8, np.uint32),), ctas=["last"])


def test_lazy_tensors_begin_with_what_they_are_filled_with():
    torch = pytest.importorskip("torch")
    values = torch.arange(1, 3001, dtype=torch.bfloat16)
    x = lazy_tensor((3, 10**9), torch.bfloat16, fill=values)
    assert x.shape == (3, 10**9)
    assert x.dtype == torch.bfloat16
    flat = x.view(-1)
    for start in (0, 2**31 - 5, 2**31 + 2**26, 3 * 10**9 - 10):
        where = torch.arange(start, start + 10)
        assert torch.equal(flat[start : start + 10], values[where % 3000])
    x[1, 5] = 0.5
    assert x[1, 5] == 0.5
    assert flat[5] == values[5]
    assert lazy_tensor(7, "float32", fill=0.5).tolist() == [0.5] * 7


@pytest.mark.dsl
def test_our_gemm_where_c_has_more_than_2_to_the_31_elements():
    torch = pytest.importorskip("torch")
    pytest.importorskip("cutlass")
    from .test_gemm import compiled

    m, n, k = 65536 + 40, 65536 + 72, 64
    torch.manual_seed(1)
    a, b = (lazy_tensor((rows, k), torch.float16, fill=torch.randint(-3, 4, (3 * 64 * 1000,))) for rows in (m, n))
    d = lazy_tensor((m, n), torch.float16)
    tiles_m, tiles_n = -(-m // 128), -(-n // 128)
    with simulate(ctas=[-1]) as run:
        function, _ = compiled(out_dtype="float16")
        function(a, b, None, d, tiles_m * tiles_n, None)
    assert run.launches[0].ctas == tiles_m * tiles_n
    assert d.numel() > 2**32
    rows, columns = slice(m // 128 * 128, m), slice(n // 128 * 128, n)
    assert torch.equal(d[rows, columns].float(), a[rows].float() @ b[columns].float().t())
    assert not d[:128, :128].any()


def test_two_ctas_that_are_written_as_one_are_refused():
    """As "0,-1" of a grid of one dimension, whose -1 would say nothing."""
    for cta in ((0, -1), (-1, 0, -1)):
        with refuses(ValueError):
            in_whole_clusters([cta], (8, 1, 1), (1, 1, 1))
    assert in_whole_clusters([(-1, -1, -1)], (8, 1, 1), (1, 1, 1)).tolist() == [7]
    assert in_whole_clusters([(0, -1)], (8, 2, 1), (1, 1, 1)).tolist() == [8]


@pytest.mark.parametrize(
    ("ctas", "said"), [([0, -1], "2 of the 9 CTAs of grid (9, 1, 1)"), (None, "k, grid (9, 1, 1)")]
)
def test_a_certificate_says_of_how_many_it_speaks(ctas, said):
    with simulate(sanitize=True, ctas=ctas) as run:
        kernel("mov.u32 %r0, %ctaid.x; mad.wide.u32 %rd2, %r0, 4, %rd0; st.global.u32 [%rd2], %r0;").launch(
            "k", 9, 1, (np.zeros(9, np.uint32),)
        )
    (certificate,) = run.certificates
    assert certificate.is_certified
    assert said in str(certificate)
    absent = "7 of the grid's 9 CTAs, which were not chosen to run"
    assert any(absent in one for one in certificate.uncovered) == (ctas is not None)
