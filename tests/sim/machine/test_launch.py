"""A launch's attributes: resident CTAs, and the shared memory of each."""

import numpy as np
import pytest

from cutepy.sim import LaunchError, MemoryAccessError, Observer, Run
from cutepy.sim.machine.launch import prepare
from tests.messages import refuses
from tests.sim import opcode_runner
from tests.sim.kernels.launching import kernel_call, launch, ptx_module


@pytest.mark.parametrize("block", [(256, 1, 1), (4, 8, 8), (1, 4, 64)])
def test_threads_of_all_axes_count_for_how_many_ctas_are_resident(block):
    """An SM holds 2048 threads, of 132 SMs."""
    text = ptx_module("", 0)
    Run((), None).launch(kernel_call(text, grid=(8 * 132, 1, 1), block=block, cooperative=True))
    with refuses(LaunchError):
        Run((), None).launch(kernel_call(text, grid=(8 * 132 + 1, 1, 1), block=block, cooperative=True))


BLOCKS = [(1024, 1, 1), (1, 1024, 1), (1, 16, 64), (32, 32, 1), (1, 1, 1)]
NO_BLOCKS = [(1025, 1, 1), (1, 1025, 1), (1, 1, 65), (32, 33, 1), (33, 1, 32), (1, 33, 32), (0, 1, 1), (1, 1, 0)]
GRIDS = [(2**31 - 1, 1, 1), (1, 65535, 1), (1, 1, 65535), (1, 1, 1)]
NO_GRIDS = [(2**31, 1, 1), (1, 65536, 1), (1, 1, 65536), (0, 1, 1), (1, 0, 1), (1, 1, 0)]
CLUSTERS = [(16, 1, 1), (1, 16, 1), (1, 1, 16), (2, 4, 2), (1, 1, 1)]
NO_CLUSTERS = [(17, 1, 1), (2, 2, 5), (5, 1, 4), (1, 5, 4), (3, 1, 1), (1, 1, 3), (0, 1, 1)]
"""The first four divide (340, 20, 20), and have too many CTAs; the others do not divide (16, 16, 16)."""
ALLOWED = (
    [{"block": block} for block in BLOCKS]
    + [{"grid": grid} for grid in GRIDS]
    + [{"grid": (16, 16, 16), "cluster": cluster} for cluster in CLUSTERS]
    + [{"dynamic_smem_bytes": size} for size in (0, 1, 227 * 1024)]
    + [{"grid": (4, 1, 1), "ctas": [(2, 0, 0)]}]
)
REFUSED = (
    [{"block": block} for block in NO_BLOCKS]
    + [{"grid": grid} for grid in NO_GRIDS]
    + [{"grid": (340, 20, 20), "cluster": cluster} for cluster in NO_CLUSTERS[:4]]
    + [{"grid": (16, 16, 16), "cluster": cluster} for cluster in NO_CLUSTERS[4:]]
    + [{"dynamic_smem_bytes": size} for size in (-1, 227 * 1024 + 1)]
)


@pytest.mark.parametrize("options", ALLOWED, ids=str)
def test_a_launch_at_the_limits_of_the_hardware_is_prepared(options):
    launch = prepare(kernel_call(ptx_module("", 0), **options))
    assert (launch.grid, launch.block) == (options.get("grid", (1, 1, 1)), options.get("block", (1, 1, 1)))


@pytest.mark.parametrize("options", REFUSED, ids=str)
def test_a_launch_beyond_the_limits_of_the_hardware_is_refused(options):
    with refuses(LaunchError):
        prepare(kernel_call(ptx_module("", 0), **options))


DIRECTIVES = [
    (".reqntid 64, 2, 1", {"block": (64, 2, 1)}, {"block": (64, 1, 1)}),
    (".reqntid 64", {"block": (64, 2, 1)}, {"block": (32, 2, 1)}),
    (".maxntid 32, 2, 1", {"block": (64, 1, 1)}, {"block": (65, 1, 1)}),
    (".reqnctapercluster 2", {"cluster": (2, 1, 1)}, {"cluster": (4, 1, 1)}),
    (".reqnctapercluster 2, 2, 1", {"cluster": (2, 2, 1)}, {"cluster": (4, 1, 1)}),
    (".maxclusterrank 4", {"cluster": (2, 2, 1)}, {"cluster": (8, 1, 1)}),
]


@pytest.mark.parametrize(("directive", "allowed", "refused"), DIRECTIVES, ids=str)
def test_a_launch_is_as_the_kernel_was_compiled_for(directive, allowed, refused):
    text, grid = ptx_module("", 0).replace("\n{", f"\n{directive}\n{{", 1), (8, 8, 1)
    prepare(kernel_call(text, **{"grid": grid} | allowed))
    with refuses(LaunchError):
        prepare(kernel_call(text, **{"grid": grid} | refused))


def test_a_launch_of_no_chosen_cta_is_refused():
    with refuses(ValueError):
        prepare(kernel_call(ptx_module("", 0), grid=(4, 1, 1), ctas=[]))


@pytest.mark.parametrize(
    ("smem", "pitch"), [(4, 1024), (1024, 1024), (1028, 2048), (5000, 5120), (227 * 1024, 227 * 1024)]
)
def test_shared_memory_of_one_cta_is_behind_that_of_another(smem, pitch):
    """Observers see where: as far apart as keeps the patterns of swizzles aligned."""

    class Addresses(Observer):
        def __init__(self):
            self.seen = set()

        def on_access(self, access):
            self.seen |= set(access.addresses.reshape(-1).tolist())

    seen = Addresses()
    launch("mov.u32 %r1, smem; st.shared.u32 [%r1], 1;", grid=(3, 1, 1), smem=smem, observers=[seen])
    assert seen.seen == {0, pitch, 2 * pitch}


@pytest.mark.parametrize(("warps", "ctas"), [(1, 1), (3, 1), (3, 2), (2, 5)])
def test_instructions_are_counted_by_warp(warps, ctas):
    body = "mov.u32 %r1, %tid.x; add.u32 %r2, %r1, %r1; bar.sync 0;"
    run = launch(body, [np.zeros(1, np.uint32)], block=(32 * warps, 1, 1), grid=(ctas, 1, 1))
    assert run.stats["instructions"] == 5 * warps * ctas


@pytest.mark.parametrize("smem", [0, 100, 4096])
def test_the_system_has_shared_memory_behind_the_kernels(smem):
    """As cooperative_groups takes it: places in it, which may be read and written."""
    out = np.zeros(7, np.uint32)
    names = [f"reserved_smem_offset_{name}" for name in ("begin", "0", "1", "end", "cap")]
    names += ["total_smem_size", "aggr_smem_size"]
    stores = "".join(f"mov.u32 %r{n}, %{name}; st.global.u32 [%rd0+{4 * n}], %r{n};" for n, name in enumerate(names))
    launch(f"{stores} st.shared.u32 [%r1], 1; st.shared.u32 [%r2], 1;", [out], block=(1, 1, 1), smem=smem)
    begin, first, second, end, cap, total, aggregate = out.tolist()
    assert smem <= begin <= first < second < end
    assert end - begin == cap == 1024
    assert (total, aggregate) == (-(-smem // 128) * 128, smem + 1024)  # as an H200 has them


@pytest.mark.parametrize("cluster", [(1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 2)])
def test_clusters_are_explicit_if_they_are_asked_for(cluster):
    out = np.zeros(1, np.uint32)
    body = "mov.pred %p1, %is_explicit_cluster; selp.u32 %r0, 1, 0, %p1; st.global.u32 [%rd0], %r0;"
    launch(body, [out], grid=(2, 2, 2), cluster=cluster)
    assert out[0] == (cluster != (1, 1, 1))


@pytest.mark.parametrize("cluster", [(2, 1, 1), (1, 2, 1), (1, 2, 4), (3,), (1, 3)])
def test_a_kernel_may_say_its_cluster(cluster):
    """The launch then need not give the cluster; extents that it leaves out are 1."""
    names = ("x", "y", "z")
    stores = "".join(
        f"mov.u32 %r1, %cluster_nctaid.{n}; st.global.u32 [%rd1+{4 * k}], %r1;" for k, n in enumerate(names)
    )
    directives = f".explicitcluster .reqnctapercluster {', '.join(map(str, cluster))}"
    out = np.zeros(3, np.uint32)
    grid = tuple(2 * extent for extent in (*cluster, 1, 1)[:3])
    opcode_runner.launch(f"ld.param.u64 %rd1, [p0]; {stores}", out, grid=grid, directives=directives)
    assert tuple(out.tolist()) == (*cluster, 1, 1)[:3]


@pytest.mark.parametrize("offset", [0, 8192])
def test_watched_loads_of_many_lanes_find_their_place_and_its_end(offset):
    count = 4096  # as few as are found by the pattern of their addresses
    data, out = np.arange(2 * count, dtype=np.uint32), np.zeros(count, np.uint32)
    body = f"""mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mad.lo.u32 %r3, %r2, 256, %r1; mul.wide.u32 %rd1, %r3, 4;
    ld.param.u64 %rd2, [p0]; add.u64 %rd2, %rd2, %rd1; ld.param.u64 %rd3, [p1]; add.u64 %rd3, %rd3, %rd1;
    ld.global.u32 %r4, [%rd2+{offset}]; st.global.u32 [%rd3], %r4;"""

    def launched():
        opcode_runner.launch(body, data, out, grid=count // 256, block=256, run=Run((), None, sanitize=True))

    launched()
    assert (out == data[offset // 4 :][:count]).all()
    data = data[: count + offset // 4 - 1].copy()
    with pytest.raises(MemoryAccessError):
        launched()
