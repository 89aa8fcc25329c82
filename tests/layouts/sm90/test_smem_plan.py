"""Plans of shared memory: regions one after another, where their alignments let them start."""

import pytest
from hypothesis import given, strategies as st

from cutepy.layouts import Layout, LayoutError, cosize
from cutepy.layouts.render import picture_of
from cutepy.layouts.sm90 import SmemArray, SmemPlan, StagedTile, arch
from tests.messages import pins, refuses

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
    with refuses(KeyError):
        plan["sB"]
    assert SmemPlan(()).size_bytes == 0
    assert str(SmemPlan(())) == "0"


@given(st.lists(arrays | tiles, min_size=1, max_size=5), st.data())
def test_overlays_begin_where_their_holders_do_and_take_no_room(contents, data):
    named = {f"r{number}": content for number, content in enumerate(contents)}
    plan = SmemPlan.of(named)
    holder = data.draw(st.sampled_from(plan.regions))
    over = data.draw(arrays | tiles)
    if over.size_bytes > holder.size_bytes or over.alignment_bytes > holder.content.alignment_bytes:
        with pytest.raises(LayoutError):
            SmemPlan.of(named, over=over, overlays={"over": holder.name})
        return
    overlaid = SmemPlan.of(named, over=over, overlays={"over": holder.name})
    assert overlaid["over"].offset_bytes == holder.offset_bytes
    assert overlaid.regions[:-1] == plan.regions
    assert overlaid.size_bytes == plan.size_bytes


def test_overlays_that_have_no_holder_are_refused():
    a, b = SmemArray(8, 32), SmemArray(4, 32)
    for overlays in ({"b": "c"}, {"a": "b"}, {"b": "b"}, {"b": "a", "c": "b"}):
        with refuses(LayoutError):
            SmemPlan.of(a=a, b=b, c=b, overlays=overlays)
    tall = SmemPlan.of(sA=StagedTile((256, 64), 8, 16), out=SmemArray(65536, 32), overlays={"out": "sA"})
    pins(tall.overrun)


def test_what_is_no_plan_is_refused():
    with refuses(TypeError):
        SmemPlan.of(sA=Layout(8))
    for tile in ((64,), (64, 64, 2)):
        with refuses(ValueError):
            StagedTile(tile, 1, 16)
    with refuses(LayoutError):
        SmemPlan((("x", SmemArray(1, 8)), ("x", SmemArray(2, 8))))
    with refuses(LayoutError):
        SmemArray(0, 8)
    with refuses(LayoutError):
        SmemArray(1, 4)
    with refuses(LayoutError):
        SmemArray(1, 8, 24)


def test_a_plan_that_does_not_fit_says_so_and_what_would():
    def ring(stages, rows=256):
        tile = StagedTile((rows, 64), stages, 16)
        return SmemPlan.of(sA=tile, sB=tile, full=SmemArray(stages, bits=64))

    assert ring(3).overrun == ""
    assert str(ring(3)).splitlines()[-1] == str(ring(3).size_bytes)
    for plan, size_bytes, remedy in [
        (ring(4), 262176, "3 stages fit"),
        (ring(9), 9 * 65536 + 72, "3 stages fit"),
        (ring(2, 512), 262160, "1 stage fits"),
        (SmemPlan.of(sA=StagedTile((256, 512), 1, 16)), 262144, "sA takes 262144: use smaller tiles"),
        (SmemPlan.of(x=SmemArray(29057, 64)), 232456, "x takes 232456: use fewer elements"),
    ]:
        assert not plan.fits
        told = (
            f"{size_bytes} bytes are {size_bytes - 232448} more than the 232448 (227 KiB) that a CTA can have; {remedy}"
        )
        assert plan.overrun == told
        assert str(plan).splitlines()[-1] == f"{size_bytes}  does not fit: {told}"
    assert ring(9)._with_stages(3).fits
    assert not ring(9)._with_stages(4).fits
    assert SmemPlan.of(x=SmemArray(29056, 64)).overrun == ""


@pytest.mark.parametrize(("stages", "told"), [(14, False), (15, True)])
def test_the_picture_of_a_tile_says_that_it_does_not_fit(stages, told):
    caption = " ".join(picture_of(StagedTile((128, 64), stages, 16).layout).caption)
    assert ("are 13312 more" in caption) == told
