"""Place of a missing instruction: in the call that both operations are part of, and of the next round in loops only."""

from types import SimpleNamespace

import pytest

from cutepy.sim import Run
from cutepy.sim.machine.launch import KernelCall
from cutepy.sim.machine.loaded_module import LoadedModule
from cutepy.sim.ptx.model import SourceLine
from cutepy.sim.sanitize.hazards import InsertionPoint
from cutepy.sim.sanitize.reports.insertion_points import between
from tests.messages import pins

SOURCE = """def write(shared, thread):
    shared[thread] = 1.0

def read(shared, thread):
    return shared[thread ^ 32]

def kernel(a, shared, thread):
    for n in range(3):
        a[thread] = read(shared, thread)
        write(shared, thread)

def roles(a, shared, thread):
    if thread < 32:
        a[thread] = shared[thread + 32]
    else:
        shared[thread] = 1.0
"""
MODULE = """.version 8.7
.target sm_90a
.address_size 64
.file 1 "{file}"
.visible .entry kernel() {{
.reg .b32 %r<9>; .reg .pred %p<4>;
.shared .align 16 .b8 smem[256];
.loc 1 8 0
mov.u32 %r1, smem; mov.u32 %r2, %tid.x; shl.b32 %r3, %r2, 2; add.u32 %r4, %r1, %r3; xor.b32 %r5, %r4, 128;
setp.lt.u32 %p1, %r2, 32; mov.u32 %r6, 0; st.shared.u32 [%r4], 0; bar.sync 0;
{body}
.loc 1 17 0
ret;
}}
.section .debug_str
{{
$name:
.b8 102
.b8 0
}}
"""
READ = """.loc 1 9 0
.loc 1 5 0, function_name $name, inlined_at 1 9 0
ld.shared.u32 %r7, [%r5];
"""
WRITE = """.loc 1 10 0
.loc 1 2 0, function_name $name, inlined_at 1 10 0
st.shared.u32 [%r4], 1;
"""
AGAIN = "add.u32 %r6, %r6, 1; setp.lt.u32 %p2, %r6, 3; @%p2 bra AGAIN;\n"


@pytest.fixture
def found(tmp_path):
    path = tmp_path / "kernel.py"
    path.write_text(SOURCE)

    def run(body):
        made = Run((), None, sanitize=True)
        text = MODULE.format(file=path, body=body)
        made.launch(KernelCall(LoadedModule(text), "kernel", (1, 1, 1), (64, 1, 1)))
        places = [(h.kind, h.between.after.line, h.between.before.line, h.between.is_next_round) for h in made.hazards]
        return places, made.hazards

    return run


def test_two_lines_of_one_call_are_those_that_the_call_is_made_at(found):
    places, hazards = found(READ + WRITE)
    assert places == [("unordered-write", 9, 10, False)]
    (told,) = hazards.to_json()["hazards"]
    assert {name: told["between"][name] for name in ("after", "before")} == {
        "after": {"file": hazards[0].between.after.file, "line": 9},
        "before": {"file": hazards[0].between.after.file, "line": 10},
    }
    pins(str(hazards))


def test_a_loop_leads_to_a_line_above(found):
    places, hazards = found(f"AGAIN:\n{READ}bar.sync 0;\n{WRITE}{AGAIN}")
    assert places == [("unordered-read", 10, 9, True)]
    pins(str(hazards))
    assert hazards.to_json()["hazards"][0]["between"]["next_round"] is True


def test_an_unrolled_loop_is_a_loop(found):
    places, _ = found(READ + "bar.sync 0;\n" + WRITE + READ)
    assert places == [("unordered-read", 10, 9, True)]


def test_without_a_loop_there_is_no_next_round(found):
    """Threads go two ways, and the one that stands below comes first."""
    read = "@!%p1 bra OTHER;\nnanosleep.u32 100;\n.loc 1 14 4\nld.shared.u32 %r7, [%r4+128];\nbra END;\n"
    write = "OTHER:\n.loc 1 16 4\nst.shared.u32 [%r4], 1;\nEND:\n"
    places, hazards = found(read + write)
    assert [place[1:] for place in places] in ([(14, 16, False)], [(16, 14, False)])
    assert "next round" not in str(hazards)


def test_of_two_launches_the_innermost_lines_are_told():
    def side(*lines):
        return SimpleNamespace(instruction=None, launch=None, chain=tuple(SourceLine("host.py", n) for n in lines))

    hazard = SimpleNamespace(kind="unordered-read", near_misses=(), before=side(3, 20), after=side(5, 30))
    assert between(hazard, None) == InsertionPoint(SourceLine("host.py", 3), SourceLine("host.py", 5))
    hazard.after = side(3, 30)
    assert between(hazard, None) is None
    hazard.after = side()
    assert between(hazard, None) is None
