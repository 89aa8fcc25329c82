"""Costly accesses: sectors and wavefronts of kernels whose addresses are chosen, against counts by hand."""

from dataclasses import replace

import numpy as np
import pytest

from cutepy.anatomy import Watch, explain
from cutepy.anatomy.model import Region
from cutepy.anatomy.page import bars
from cutepy.anatomy.sections import _region
from cutepy.anatomy.smem import UNUSED, _folded
from cutepy.sim.run import Run
from tests.sim.opcode_runner import launch

pytestmark = pytest.mark.dsl

GLOBAL = """
ld.param.u64 %rd1, [p0];
mov.u32 %r1, %tid.x;
mul.wide.u32 %rd2, %r1, {pitch};
add.s64 %rd2, %rd2, %rd1;
ld.global.{kind} {to}, [%rd2+{offset}];
"""


def costly(body, *arguments, **options):
    watch = Watch()
    launch(body, *arguments, run=Run((watch,), None), **options)
    explanation = explain(watch, assembler=False)
    return explanation.kernels[0].accesses, explanation


@pytest.mark.parametrize(
    ("pitch", "kind", "offset", "taken", "fewest"),
    [
        (128, "u32", 0, 32, 4),  # each lane in a row of its own
        (8, "u32", 0, 8, 4),  # every second word
        (4, "u32", 4, 5, 4),  # one word beyond the alignment of a sector
        (32, "v2.u32", 0, 32, 8),
    ],
)
def test_uncoalesced_loads_are_told_with_their_sectors(pitch, kind, offset, taken, fewest):
    body = GLOBAL.format(pitch=pitch, kind=kind, offset=offset, to="{%r2, %r3}" if kind.startswith("v2") else "%r2")
    ((access,), explanation) = costly(body, np.zeros(2048, np.uint32), block=64, grid=3)
    assert (access.space, access.taken, access.fewest, access.warps) == ("global", 6 * taken, 6 * fewest, 6)
    assert access.site.lines[0].endswith(":5")  # of the body
    assert f"{6 * taken} sectors" in explanation.text()
    assert explanation.json()["kernels"][0]["accesses"][0]["taken"] == 6 * taken


@pytest.mark.parametrize(("pitch", "kind"), [(4, "u32"), (0, "u32"), (8, "u64"), (2, "u16")])
def test_coalesced_and_uniform_loads_are_not_told(pitch, kind):
    to = {"u32": "%r2", "u64": "%rd3", "u16": "%rs2"}[kind]
    body = GLOBAL.format(pitch=pitch, kind=kind, offset=0, to=to)
    accesses, explanation = costly(body, np.zeros(2048, np.uint32), block=64)
    assert accesses == ()
    assert "no uncoalesced access" in explanation.text()


def test_lanes_that_are_off_count_neither_way():
    body = "mov.u32 %r9, %tid.x; setp.lt.u32 %p1, %r9, 3; @!%p1 bra OFF;" + GLOBAL.format(
        pitch=128, kind="u32", offset=0, to="%r2"
    )
    ((access,), _) = costly(body + "OFF:", np.zeros(2048, np.uint32))
    assert (access.taken, access.fewest) == (3, 1)


def test_bank_conflicts_are_told_after_what_costs_more():
    body = """
    mov.u32 %r1, %tid.x; mov.u32 %r0, smem;
    mad.lo.u32 %r2, %r1, 128, %r0;
    st.shared.u32 [%r2], %r1;
    mad.lo.u32 %r3, %r1, 8, %r0;
    ld.shared.u32 %r4, [%r3]; ld.shared.u32 %r4, [%r3+4];
    """
    ((store, load), _) = costly(body, smem_bytes=4096)
    assert (store.space, store.taken, store.fewest) == ("shared", 32, 1)
    assert (load.instructions, load.taken, load.fewest) == (2, 4, 2)


def test_without_a_launch_nothing_is_said():
    ptx = ".version 8.0 .target sm_90a .visible .entry k() { ret; }"
    assert "Costly accesses" not in explain(ptx, assembler=False).text()


def test_scattered_atomics_are_told():
    body = GLOBAL.replace("ld.global.{kind} {to}, [%rd2+{offset}];", "red.global.add.u32 [%rd2], %r1;").format(
        pitch=128
    )
    ((access,), _) = costly(body, np.zeros(2048, np.uint32), block=64)
    assert (access.space, access.taken, access.fewest) == ("global", 64, 8)


def test_atomics_of_shared_memory_are_told():
    body = """
    mov.u32 %r0, smem; mov.u32 %r1, %tid.x; mad.lo.u32 %r2, %r1, 128, %r0;
    atom.shared.add.u32 %r3, [%r2], 1;"""
    ((access,), _) = costly(body, smem_bytes=32 * 128)
    assert (access.space, access.taken, access.fewest) == ("shared", 32, 1)


def test_alternating_uses_at_regular_distances_are_one_region_each():
    body = """
    mov.u32 %r0, smem; mov.u32 %r1, %tid.x; mad.lo.u32 %r2, %r1, 128, %r0;
    atom.shared.add.u32 %r3, [%r2], 1;
    st.shared.u32 [%r2+64], %r1;"""
    _, explanation = costly(body, smem_bytes=32 * 128)
    regions = explanation.kernels[0].regions
    assert [region.starts for region in regions] == [tuple(range(at, 4096, 128)) for at in (0, 64)]
    assert [region.bytes for region in regions] == [8, 8]
    assert "0x0 + 32:128  8 bytes each" in explanation.text()


def test_regions_fold_where_their_addresses_are_a_progression():
    def starts(*regions):
        return sorted(region.starts or (region.start,) for region in _folded(Region(*r) for r in regions))

    assert starts((0, 8, "a"), (32, 8, "a"), (64, 8, "a"), (8, 8, "b")) == [(0, 32, 64), (8,)]
    assert starts((0, 8, "a"), (32, 8, "a"), (96, 8, "a")) == [(0,), (32,), (96,)]
    assert starts((0, 8, "a"), (32, 16, "a"), (64, 8, "a")) == [(0,), (32,), (64,)]
    assert starts((0, 8, "a"), (64, 8, "a")) == [(0,), (64,)]


def test_parts_of_a_region_are_told_before_its_users():
    entry = _region(Region(1024, 4096, "a tile", ("TMA load at 7",), ("wgmma A at 9",), (1024, 3072)))
    assert [name for name, _ in entry.facts] == ["in parts", "written", "read"]
    assert entry.facts[0][1].startswith("2 that start at 0x400")


def test_bars_are_as_wide_as_their_regions_but_wide_enough_to_be_pointed_at():
    _, explanation = costly("", smem_bytes=1024)
    regions = (Region(0, 8, "mbarrier"), Region(8, 1016, UNUSED), Region(1024, 64512, "scratch"))
    found = bars(replace(explanation.kernels[0], regions=regions))
    assert [(bar.left, bar.width) for bar in found] == [(0, 0.3), (1.562, 98.438)]
