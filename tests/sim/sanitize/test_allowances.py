"""Allowances of a line or of a run: each needs a kind and a reason, is repeated, and told where it is in vain."""

import re

import pytest
from hypothesis import given, strategies as st

from cutepy.sim import HazardError, Run
from cutepy.sim.machine.launch import KernelCall
from cutepy.sim.machine.loaded_module import LoadedModule
from cutepy.sim.sanitize import AllowanceError
from cutepy.sim.sanitize.kinds import KINDS
from cutepy.sim.sanitize.reports.allowances import comments
from tests.messages import pins, refuses

MODULE = """.version 8.7
.target sm_90a
.address_size 64
.file 1 "{folder}/kernel.py"
.file 2 "{folder}/library.cuh"
.visible .entry race()
{{
    .reg .b32 %r<6>;
    .shared .b8 data[256];
    mov.u32 %r0, %tid.x;
    shl.b32 %r1, %r0, 2;
    xor.b32 %r2, %r1, 128;
    mov.u32 %r5, data;
    add.u32 %r1, %r1, %r5;
    add.u32 %r2, %r2, %r5;
    .loc 1 9 0
    {above}
    st.shared.u32 [%r1], %r0; {beside}
    .loc 1 11 0
    .loc 2 2 0, function_name $name, inlined_at 1 11 0
    ld.shared.u32 %r3, [%r2];
    ret;
}}
.section .debug_str
{{
$name:
.b8 102
.b8 0
}}
"""
SOURCE = ["# line"] * 8 + ["write()", "# of the caller", "read()", "done()"]


def race(folder, *, kernel=(), library=(), above="", beside="", allow=None):
    """Run two warps that race; `kernel` and `library` replace lines of the sources."""
    for name, changes in (("kernel.py", kernel), ("library.cuh", library)):
        lines = SOURCE.copy()
        for number, text in changes:
            lines[number - 1] = text
        (folder / name).write_text("\n".join(lines) + "\n")
    run = Run((), None, sanitize=True, allow=allow)
    text = MODULE.format(folder=folder, above=above, beside=beside)
    run.launch(KernelCall(LoadedModule(text), "race", (1, 1, 1), (64, 1, 1)))
    return run


COMMENT = "cutepy: allow[unordered-read] it is only a hint"
PLACES = {
    "the line of the write": {"kernel": [(9, f"write()  # {COMMENT}")]},
    "the line above the write": {"kernel": [(8, f"# {COMMENT}")]},
    "above, with another comment between": {"kernel": [(7, f"    # {COMMENT}"), (8, "# which the write is")]},
    "the line that the read was inlined at": {"kernel": [(11, f"read()  # {COMMENT}")]},
    "the line of the read": {"library": [(2, f"read(); // {COMMENT}")]},
    "two kinds": {"kernel": [(9, "write()  # cutepy: allow[unordered-write, unordered-read] it is only a hint")]},
    "the PTX": {"beside": f"// {COMMENT}"},
    "the PTX, above": {"above": f"// {COMMENT}"},
    "an argument": {"allow": {"unordered-read": "it is only a hint"}},
}


@pytest.mark.parametrize("place", PLACES)
def test_what_is_allowed_is_repeated_with_its_reason(place, tmp_path):
    run = race(tmp_path, **PLACES[place])
    run.check_hazards()
    assert run.hazards == ()
    assert run.hazards.unused == ()
    (allowed,) = run.hazards.allowed
    assert allowed.kind == "unordered-read"
    pins(allowed.allowed)
    pins(str(run.hazards))


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"kernel": [(10, "# nothing here"), (9, "write('# cutepy: allow[unordered-read] in a string')")]},
        {"kernel": [(8, "other()  # cutepy: allow[unordered-read] ends the line above")]},
        {"kernel": [(12, f"done()  # {COMMENT}")]},
    ],
)
def test_what_is_not_allowed_is_found(change, tmp_path):
    run = race(tmp_path, **change)
    with pytest.raises(HazardError) as caught:
        run.check_hazards()
    assert [h.kind for h in caught.value.hazards] == ["unordered-read"]
    assert caught.value.hazards.unused == ()


def test_another_kind_is_no_reason_and_is_told(tmp_path):
    run = race(tmp_path, kernel=[(9, "write()  # cutepy: allow[missing-proxy-fence] there is one")])
    assert len(run.hazards) == 1
    (unused,) = run.hazards.unused
    assert (unused.file, unused.line) == (str(tmp_path / "kernel.py"), 9)
    pins(str(run.hazards))


def test_an_argument_that_covers_nothing_is_told(tmp_path):
    run = race(tmp_path, allow={"missing-proxy-fence": "there is one"})
    assert len(run.hazards) == 1
    pins(str(run.hazards))


@pytest.mark.parametrize(
    "comment",
    [
        "# cutepy: allow[unordered-read]",
        "# cutepy: allow[unordered-raed] a typo",
        "# cutepy: allow[] nothing",
        "# cutepy: allow no brackets",
    ],
)
def test_what_cannot_be_meant_is_an_error(comment, tmp_path):
    with refuses(AllowanceError):
        race(tmp_path, kernel=[(9, f"write()  {comment}")])


def test_so_are_arguments():
    with refuses(AllowanceError):
        Run((), None, sanitize=True, allow={"unordered-read": " "})
    with refuses(AllowanceError):
        Run((), None, sanitize=True, allow={"race": "why not"})
    with refuses(ValueError):
        Run((), None, allow={"unordered-read": "why not"})


REASONS = st.text(st.characters(blacklist_categories=("Cc", "Cs", "Zl", "Zp", "Zs")), min_size=1)


@given(
    before=st.lists(st.sampled_from(["", "x = 1", "# a comment", "y = '# cutepy: allow[x] z'"]), max_size=4),
    kinds=st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=3),
    reason=REASONS,
    indent=st.integers(0, 4),
    after=st.lists(st.sampled_from(["", "# a comment"]), max_size=3),
)
def test_a_comment_alone_holds_for_the_next_line_of_code(before, kinds, reason, indent, after):
    lines = [*before, f"{' ' * indent}# cutepy: allow[{', '.join(kinds)}] {reason}", *after, "code()"]
    (found,) = comments("\n".join(lines) + "\n", "x.py")
    assert found.kinds == tuple(kinds)
    assert found.reason == reason
    assert (found.line, found.lines) == (len(before) + 1, range(len(lines), len(lines) + 1))


OF_PYTHON = """
@decorated  # A
# B
@also(
    twice,
)
def kernel(a,
           b):  # C
    # D
    call(
        a,  # E
        # F
        b,
    )
    x = a + \\
        b  # G
    for k in range(3):  # H
        y = 1  # I
    # J
    if x:
        y = 2
    else:  # K
        y = 3

    z = 4
# L
w = 5; v = 6  # M
"""


@pytest.mark.parametrize(
    ("letter", "text"),
    [
        *((letter, "whole") for letter in "ABC"),
        *((letter, "    call(\n        a,\n\n        b,\n    )") for letter in "DEF"),
        ("G", "    x = a + \\\n        b"),
        ("H", "    for k in range(3):\n        y = 1"),
        ("I", "        y = 1"),
        *((letter, "    if x:\n        y = 2\n    else:\n        y = 3") for letter in "JK"),
        *((letter, "w = 5; v = 6") for letter in "LM"),
    ],
)
def test_a_comment_holds_for_the_statement_that_it_is_in_or_before(letter, text):
    written = re.sub(rf"# {letter}$", f"# {COMMENT}", OF_PYTHON, flags=re.MULTILINE)
    written = re.sub(r" *# [A-Z]$", "", written, flags=re.MULTILINE)
    (found,) = comments(written, "x.py")
    lines = [line.partition("#")[0].rstrip() for line in written.split("\n")]
    covered = "\n".join(lines[number - 1] for number in found.lines)
    if text == "whole":
        whole = lines[lines.index("@decorated") : lines.index("w = 5; v = 6")]
        text = "\n".join(whole).rstrip("\n")
    assert covered == text


OF_C = """{
    .loc 1 2 3
    wgmma.mma_async.sync.aligned  // A
    {%f0, %f1,  // B
     %f2},
     %rd0;  // C
    st.global.u32 [%rd0], // D
    // E
        %r0;
    // F
    .loc 1 2 4
    // G
    @%p0 bra
        END;
END: ret;  // H
}"""


@pytest.mark.parametrize(("letters", "first", "last"), [("ABC", 3, 6), ("DE", 7, 9), ("FG", 13, 14), ("H", 15, 15)])
def test_so_it_does_in_ptx_and_in_cpp(letters, first, last):
    for letter in letters:
        written = re.sub(rf"// {letter}$", f"// {COMMENT}", OF_C, flags=re.MULTILINE)
        (found,) = comments(written, "the PTX")
        assert found.lines == range(first, last + 1), letter


def test_a_call_of_several_lines_is_covered_by_a_comment_before_it(tmp_path):
    """The instruction is at the last of its lines, as the DSL and nvcc have it for some."""
    for place in (7, 8, 9):
        lines = {7: "write(", 8: "    x,", 9: ")"}
        lines[place] += f"  # {COMMENT}"
        run = race(tmp_path, kernel=lines.items())
        assert run.hazards == ()
        assert run.hazards.unused == ()
        (allowed,) = run.hazards.allowed
        assert allowed.allowed_at == f"{tmp_path}/kernel.py:{place}"


@pytest.mark.parametrize(
    "given",
    [["unordered-read"], "unordered-read", {"unordered-read": True}, {3: "why not"}, 5],
)
def test_an_argument_of_another_type_is_refused(given):
    with refuses(TypeError):
        Run((), None, sanitize=True, allow=given)
