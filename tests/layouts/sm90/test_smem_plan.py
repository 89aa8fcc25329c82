"""Plans of shared memory: regions one after another, where their alignments let them start."""

import pytest
from hypothesis import given, strategies as st

from cutepy.layouts import Layout, LayoutError, cosize
from cutepy.layouts.sm90 import SmemArray, SmemPlan, StagedTile, arch

arrays = st.builds(SmemArray, st.integers(1, 500), st.sampled_from([8, 16, 32, 64]), st.sampled_from([0, 8, 128, 1024]))
tiles = st.builds(
    StagedTile,
    st.tuples(st.sampled_from([8, 64, 128]), st.sampled_from([16, 32, 64, 128])),
    st.integers(1, 4),
    st.sampled_from([8, 16, 32]),
    st.just(1),
)


@given(st.lists(arrays | tiles, max_size=6))
def test_regions_follow_one_another_aligned_and_without_overlap(contents):
    plan = SmemPlan.of({f"r{number}": content for number, content in enumerate(contents)})
    end = 0
    for region, content in zip(plan, contents, strict=True):
        assert region.content == content
        assert region.offset_bytes % content.alignment_bytes == 0
        assert end <= region.offset_bytes < end + content.alignment_bytes
        assert cosize(region.layout) * region.bits == 8 * region.size_bytes
        end = region.end_bytes
    assert plan.size_bytes == end
    assert plan.fits == (end <= arch.SMEM_BYTES_PER_CTA)


def test_a_plan_is_a_value_that_is_asked_by_name():
    plan = SmemPlan.of(sA=StagedTile((64, 64), 2, 16), full=SmemArray(2, bits=64))
    assert plan == SmemPlan.of({"sA": StagedTile((64, 64), 2, 16, swizzle="SW128"), "full": SmemArray(2, 64, 8)})
    assert hash(plan) == hash(SmemPlan(plan.contents))
    assert "sA" in plan
    assert "sB" not in plan
    assert plan["full"].offset_bytes == 16384
    assert plan["full"].layout == Layout(2)
    with pytest.raises(KeyError, match="no region 'sB': there are sA, full"):
        plan["sB"]
    assert SmemPlan(()).size_bytes == 0
    assert str(SmemPlan(())) == "0"


def test_what_is_no_plan_is_refused():
    with pytest.raises(TypeError, match=r"region sA must be a StagedTile or an SmemArray.* got Layout"):
        SmemPlan.of(sA=Layout(8))
    for tile in ((64,), (64, 64, 2)):
        with pytest.raises(ValueError, match="a shared-memory tile has rows and columns, got"):
            StagedTile(tile, 1, 16)
    with pytest.raises(LayoutError, match="a name of its own"):
        SmemPlan((("x", SmemArray(1, 8)), ("x", SmemArray(2, 8))))
    with pytest.raises(LayoutError, match="1 element or more, of whole bytes"):
        SmemArray(0, 8)
    with pytest.raises(LayoutError, match="1 element or more, of whole bytes"):
        SmemArray(1, 4)
    with pytest.raises(LayoutError, match="a power of 2"):
        SmemArray(1, 8, 24)
