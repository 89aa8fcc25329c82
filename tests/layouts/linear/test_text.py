"""Printed forms are read."""

import pytest

from cutepy.layouts import ParseError
from cutepy.layouts.linear import LinearLayout, parse_linear
from tests.messages import refuses

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
        TRITON.partition("where")[0],
        f"src layout:{TRITON}",
        f"src layout:{TRITON.partition('where')[0]}",
        "register = [[1, 0], [8, 0]], lane = [[2, 0], [4, 0], [0, 1]], warp = [], block = []",
        '{"register": [[1, 0], [8, 0]], "lane": [[2, 0], [4, 0], [0, 1]], "warp": [], "block": []}',
    ],
)
def test_every_printed_form_is_read(text):
    assert parse_linear(text) == EXPECTED


def test_triton_s_text_is_printed():
    assert str(EXPECTED) == TRITON.strip("\n")
    assert str(LinearLayout({}, {})) == "(empty layout)"
    assert parse_linear("\n(empty layout)") == LinearLayout({}, {})


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("", 0),
        (TRITON.replace("register=2", "register=4"), 37),
        (TRITON.replace("- warp is a size 1 dimension", "- warp"), 110),
        (TRITON.replace("- lane=1", "- register=1"), 61),
        (TRITON.replace("- block", "- register"), 140),
        (TRITON.replace(" (size 2)", ""), 211),
        (TRITON.replace("dim1 (size 2)", "dim0 (size 2)"), 206),
        (TRITON.replace("dim1 (size 2)", "dim1 (size 2), dim0"), 221),
        (TRITON.replace("(size 2)]", "(size 2)] 5"), 170),
        (TRITON.replace("(8, 0)", "(8, 0, 0)"), 2),
        (TRITON.replace("(8, 0)", "(8, 0, 0)").partition("where")[0], 2),
        (" - warp is a size 1 dimension", 1),
        ("where out dims are: [dim0 (size 16)]", 0),
        (TRITON + TRITON, 224),
        (TRITON + "5 apples", 222),
        ("lane = [[1, 0], [1]]", 0),
        ("lane = [[1, 0]], lane = [[2, 0]]", 17),
        ("lane = [[1, 0]], warp = [[0, 1]] + 5", 33),
        ("lane = []", 0),
        ("cga_layout = [[1, 0]]", 0),
        ("lane = [[0, 1]], padding = [[1, 0]]", 17),
        ("lane = [[1, x]]", 12),
        ("[[1]]", 0),
        ("(4,8):(8,1)", 0),
        ("LinearLayout({'i': [[1]]}, {'o': 3})", 0),
        ("LinearLayout({'i': [[1]]})", 0),
        ("LinearLayout({'i': [[1]]}, {'o': 2}) * 2", 37),
        ("#ttg.linear<{register = [[0, 1]], lane = [[0, 2]]}>", 0),
        ("#ttg.linear<{register = [[0, 1]], lane = [], warp = [], block = [], x = []}>", 0),
        ("#ttg.linear<{register = [[1], [0, 1]], lane = [], warp = [], block = []}>", 0),
        (TRITON.replace("lane=2", "register=4"), 72),
        (TRITON.replace("- block is a size 1 dimension", "- warp=1 -> (0, 0)"), 142),
        (TRITON.replace("(4, 0)", "(4, x)"), TRITON.index("lane=2")),
    ],
)
def test_what_is_not_a_layout_is_refused_at_its_place(text, position):
    with refuses(ParseError) as caught:
        parse_linear(text)
    assert caught.value.position == position


def test_nothing_but_text_is_read():
    with refuses(TypeError):
        parse_linear(EXPECTED)  # type: ignore[arg-type]
