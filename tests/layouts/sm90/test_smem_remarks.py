"""Remarks on the regions of a plan: what is written is read again, stage by stage."""

from cutepy.layouts.sm90 import SmemArray, SmemPlan, StagedTile
from cutepy.layouts.sm90.smem_remarks import named_regions, remarks

PLAN = SmemPlan.of(
    {"sA": StagedTile((64, 64), 3, 16), "with blank": SmemArray(1, bits=8), "words": SmemArray(5, bits=32)},
    sB=StagedTile((64, 64), 2, 16),
    overlays={"sB": "sA"},
)


def test_regions_are_read_as_they_are_planned():
    found = {region.name: region for region in named_regions(f"mov.u32 %r1, 0;\n{remarks(PLAN)}\nret;")}
    assert [*found] == ["sA", "words", "sB"]  # a name with blanks is no word of a report
    for name, region in found.items():
        assert (region.start, region.end) == (PLAN[name].offset_bytes, PLAN[name].end_bytes)
    assert found["sA"].stages == 3


def test_an_offset_is_in_one_stage_or_none():
    region = named_regions(remarks(PLAN))[0]
    each = region.stage_bytes
    assert [region.stage_of(at) for at in (0, each - 1, each, 3 * each - 1)] == [0, 0, 1, 2]
    assert region.stage_of(3 * each) is None
    assert region._replace(start=16).stage_of(0) is None
