"""Printed forms are read."""

import pytest

from cutepy.layouts import LayoutError
from cutepy.layouts.linear import LinearLayout, parse_linear

EXPECTED = LinearLayout(
    {"register": [[1, 0], [8, 0]], "lane": [[2, 0], [4, 0], [0, 1]], "warp": [], "block": []}, {"dim0": 16, "dim1": 2}
)
TRITON = """
 - register=1 -> (1, 0)
   register=2 -> (8, 0)
 - lane=1 -> (2, 0)
   lane=2 -> (4, 0)
   lane=4 -> (0, 1)
 - warp is a size 1 dimension
 - block is a size 1 dimension
where out dims are: [dim0 (size 16), dim1 (size 2)]
"""


@pytest.mark.parametrize(
    "text",
    [
        TRITON,
        TRITON.replace(" (size 16)", "").replace(" (size 2)", ""),
        "#ttg.linear<{register = [[1, 0], [8, 0]], lane = [[2, 0], [4, 0], [0, 1]], warp = [], block = []}>",
        "DistributedLinearLayout(reg_bases=[[1, 0], [8, 0]], lane_bases=[[2, 0], [4, 0], [0, 1]], warp_bases=[],"
        " block_bases=[], shape=[16, 2])",
        repr(EXPECTED),
    ],
)
def test_every_printed_form_is_read(text):
    assert parse_linear(text) == EXPECTED


def test_triton_s_text_is_printed():
    assert str(EXPECTED) == TRITON.strip("\n")
    assert str(LinearLayout({}, {})) == "(empty layout)"
    assert parse_linear("\n(empty layout)") == LinearLayout({}, {})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "need a last line, `where out dims are"),
        (TRITON.replace("register=2", "register=4"), "need register=2, got '- ?register=4|need register=2, got"),
        (TRITON.replace("- warp is a size 1 dimension", "- warp"), "need a line as `lane=1 -> "),
        ("lane = [[1, 0], [1]]", "all of one rank"),
        ("[[1]]", "need bases"),
    ],
)
def test_what_is_not_a_layout_is_refused(text, message):
    with pytest.raises(LayoutError, match=message):
        parse_linear(text)
