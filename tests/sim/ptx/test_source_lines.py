"""The lines of instructions for which the compiler names the host's function."""

from dataclasses import replace

import pytest

from cutepy.sim.ptx import source_lines
from cutepy.sim.ptx.model import Instruction, Register, SourceLine
from cutepy.sim.ptx.parser import parse_module

PTX = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry kernel(.param .u64 out)
{{
    .reg .b32 %r<4>; .reg .b64 %rd<2>;
    .loc 1 10 0
    ld.param.u64 %rd0, [out];
    .loc 1 11 8
    mov.u32 %r0, %tid.x;
    .loc 1 {place}
    atom.global.add.u32 %r1, [%rd0], 1;
    {next}
    .loc 1 13 {column}
    st.global.u32 [%rd0+4], %r0;
    ret;
}}
.file 1 "kernel.py"
"""


@pytest.mark.parametrize(
    ("place", "then", "column", "line"),
    [
        ("63 0", "", 8, 13),  # the line where its result is used
        ("63 0", "bra END; END:", 8, 11),  # not beyond a branch
        ("12 0", "", 8, 12),  # a line of the kernel
        ("11 0", "", 8, 11),
        ("13 0", "bra END; END:", 8, 13),
        ("63 4", "", 8, 63),  # that of a function which was inlined
    ],
)
def test_a_line_of_the_host_is_replaced(place, then, column, line):
    ptx = PTX.format(place=place, next=then, column=column)
    atomic = next(i for i in parse_module(ptx).functions["kernel"].instructions if i.opcode.startswith("atom"))
    assert atomic.source.line == line
    assert atomic.line == 1 + ptx[: ptx.index("atom")].count("\n")


def test_without_columns_lines_stand():
    ptx = PTX.format(place="63 0", next="", column=0).replace("11 8", "11 0")
    assert {i.source.line for i in parse_module(ptx).functions["kernel"].instructions} == {10, 11, 63, 13}


@pytest.mark.parametrize(("again", "line"), [("", 13), (".loc 2 64 0", 63)])
def test_a_host_in_another_file_is_replaced_where_it_is_all_that_is_of_that_file(again, line):
    ptx = PTX.format(place="12 8", next=again, column=8).replace("1 12 8", "2 63 0") + '.file 2 "host.py"\n'
    atomic = next(i for i in parse_module(ptx).functions["kernel"].instructions if i.opcode.startswith("atom"))
    assert atomic.source.line == line


@pytest.mark.parametrize(
    ("file", "distance"),
    [
        ("mine.py", 0),
        ("site-packages.py", 0),
        ("lib/site-packages/quack/copy.py", 1),
        ("lib/site-packages/cutlass/cute.py", 2),
        ("lib/site-packages/cutlass/site-packages/mine/copy.py", 1),
        ("lib/dist-packages/mine/site-packages/triton/copy.py", 2),
        ("lib/site-packages", 1),
        (source_lines.__file__, 2),
    ],
)
def test_files_are_as_far_from_the_user_as_where_they_are_installed(file, distance):
    assert source_lines.distance(file) == distance


def test_instructions_are_compared_without_their_places():
    """Opcode, operands and predicate say what an instruction does; texts, lines and files only say where it is."""
    here, there = (SourceLine(f"{name}.py", n) for n, name in enumerate(("here", "there")))
    one = Instruction(3, "ret", (), None, "ret;", here, 4, 5, "a.ptx")
    other = Instruction(3, "ret", (), None, "ret ;", there, 6, 7, "b.ptx")
    assert one == other == Instruction(3, "ret", ())
    assert len({one, other}) == 1
    one.derived["note"] = 1
    assert one == other
    predicate = Register("%p0", "pred", 0), True
    operands = (Register("%r0", "b32", 0),)
    for changed in ({"index": 4}, {"opcode": "exit"}, {"operands": operands}, {"predicate": predicate}):
        assert replace(one, **changed) != one
