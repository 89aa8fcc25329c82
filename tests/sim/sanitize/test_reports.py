"""Reports of hazards: as text with the lines of the source, as JSON, as SARIF, and in notebooks."""

import html
import json
import re

import pytest

import cutepy
from cutepy.sim import DeadlockError, HazardError, Run
from cutepy.sim.machine.launch import KernelCall
from cutepy.sim.machine.loaded_module import LoadedModule
from cutepy.sim.sanitize.kinds import KINDS, Kind
from cutepy.sim.sanitize.reports import sarif
from tests.messages import pins, refuses
from tests.sim.opcode_runner import launch
from tests.sim.sanitize.sarif_rules import check_sarif

KERNEL = '''"""A kernel."""


def put(shared, thread):
    shared[thread] = 1.0  # one for each


def shift(a, shared, thread):
    put(shared, thread)
    a[thread] = shared[(thread + 32) % 64]
'''
# A loop of two rounds, unrolled: the same two lines twice.
MODULE = """.version 8.7
.target sm_90a
.address_size 64
{file}
.visible .entry shift()
{{
    .reg .b32 %r<6>;
    .shared .b8 data[512];
    mov.u32 %r0, %tid.x;
    shl.b32 %r1, %r0, 2;
    xor.b32 %r2, %r1, 128;
    mov.u32 %r5, data;
    add.u32 %r1, %r1, %r5;
    add.u32 %r2, %r2, %r5;
    {at} 9 0
    {at} 5 0, function_name $name, inlined_at 1 9 0
    st.shared.u32 [%r1], %r0;
    {at} 10 0
    ld.shared.u32 %r3, [%r2];
    {at} 9 0
    {at} 5 0, function_name $name, inlined_at 1 9 0
    st.shared.u32 [%r1+256], %r0;
    {at} 10 0
    ld.shared.u32 %r3, [%r2+256];
    ret;
}}
.section .debug_str
{{
$name:
.b8 102
.b8 0
}}
"""
TEXT = """1 hazard
unordered-read: data[32] (shared memory at 0x80) of shift, 2 times
   --> kernel.py:5 in put
   5 |     shared[thread] = 1.0  # one for each
     |     ^^^^^^^^^^^^^^^^^^^^ st write by warp 1, lane 0 of CTA (0, 0, 0)
     | called at kernel.py:9 in shift: put(shared, thread)
   --> kernel.py:10 in shift
  10 |     a[thread] = shared[(thread + 32) % 64]
     |     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ ld read by warp 0, lane 0 of CTA (0, 0, 0)
     = a read is not ordered after the write of the same bytes
     = a barrier that both take part in, or an arrival and a wait at an mbarrier, must come between \
(after line 9, before line 10)"""


@pytest.fixture
def hazards(tmp_path, monkeypatch):
    """Run the kernel in a folder with its source."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kernel.py").write_text(KERNEL)
    return run(f'.file 1 "{tmp_path}/kernel.py"', ".loc 1").hazards


def run(file="", at="// none", **options):
    """Run the kernel, with or without its source."""
    made = Run((), None, sanitize=True, **options)
    made.launch(KernelCall(LoadedModule(MODULE.format(file=file, at=at)), "shift", (1, 1, 1), (64, 1, 1)))
    return made


@pytest.mark.parametrize(("offset", "width", "covered"), [(0, 4, 16), (8, 2, 8), (4, 1, 4), (12, 1, 4)])
def test_a_hazard_is_of_the_bytes_that_both_sides_touch(offset, width, covered):
    """Another store is of one byte, so that accesses are recorded byte by byte."""
    registers = ", ".join(["%r4", "%r5", "%r6", "%r7"][:width])
    load = f"ld.shared.v{width}.u32 {{{registers}}}" if width > 1 else "ld.shared.u32 %r4"
    run = Run((), None, sanitize=True)
    launch(
        f"""mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 31; shl.b32 %r2, %r2, 4; mov.u32 %r3, smem; add.u32 %r3, %r3, %r2;
        setp.ge.u32 %p1, %r1, 32;
        @%p1 add.u32 %r8, %r3, 512; @!%p1 add.u32 %r8, %r3, 1024; st.shared.u8 [%r8], %r1;
        @!%p1 st.shared.v4.u32 [%r3], {{%r1, %r1, %r1, %r1}}; @%p1 {load}, [%r3+{offset}];""",
        run=run,
        block=64,
        smem_bytes=2048,
    )
    assert [(h.kind, h.address, h.size_bytes) for h in run.hazards] == [("unordered-read", offset, covered)]


def test_the_text_shows_both_lines(hazards):
    assert str(hazards) == TEXT
    assert str(HazardError(hazards)) == TEXT


def test_both_sides_on_one_line_are_shown_once(tmp_path, monkeypatch):
    """As of a reduction in Triton, whose exchange through shared memory is one line."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kernel.py").write_text(KERNEL)
    text = MODULE.format(file=f'.file 1 "{tmp_path}/kernel.py"', at=".loc 1")
    text = text.replace(".loc 1 10 0", ".loc 1 5 0, function_name $name, inlined_at 1 9 0")
    made = Run((), None, sanitize=True)
    made.launch(KernelCall(LoadedModule(text), "shift", (1, 1, 1), (64, 1, 1)))
    assert str(made.hazards).splitlines()[2:7] == [
        "   --> kernel.py:5 in put",
        "   5 |     shared[thread] = 1.0  # one for each",
        "     |     ^^^^^^^^^^^^^^^^^^^^ st write by warp 1, lane 0 of CTA (0, 0, 0),",
        "     |                          and ld read by warp 0, lane 0 of CTA (0, 0, 0)",
        "     | called at kernel.py:9 in shift: put(shared, thread)",
    ]


def test_without_a_source_the_ptx_is_shown():
    text = str(run().hazards)
    pins(text)
    assert re.search(r"--> the PTX:(\d+)\n +\1 \| st.shared.u32 \[%r1\], %r0", text)


def test_with_a_source_that_is_not_there_its_line_is_named():
    text = str(run('.file 1 "/nowhere/gone.py"', ".loc 1").hazards)
    pins(text)


def test_a_notebook_shows_the_same(hazards):
    page = hazards._repr_html_()
    assert html.unescape(re.sub(r"<[^>]*>", "", page)) == TEXT
    assert page.count("<span") == page.count("</span>")


def test_json_has_it_in_parts(hazards, tmp_path):
    report = json.loads(json.dumps(hazards.to_json()))
    assert [*report] == ["version", "hazards", "advisories", "allowed", "unused"]
    (found,) = report["hazards"]
    assert (found["kind"], found["severity"], found["count"]) == ("unordered-read", "hazard", 2)
    before, after = found["before"], found["after"]
    assert (before["file"], before["line"], before["function"]) == (str(tmp_path / "kernel.py"), 5, "put")
    assert before["callers"] == [{"file": str(tmp_path / "kernel.py"), "line": 9, "function": "shift"}]
    assert (after["line"], after["function"], after["callers"]) == (10, "shift", [])
    assert (before["cta"], before["warp"], before["lane"]) == ([0, 0, 0], 1, 0)
    assert before["ptx"].startswith("st.shared.u32")


def test_sarif_has_what_the_schema_requires(hazards):
    log = json.loads(json.dumps(hazards.to_sarif()))
    check_sarif(log)
    assert log["version"] == "2.1.0"
    (one,) = log["runs"]
    rules = one["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == [*KINDS]
    (result,) = one["results"]
    assert rules[result["ruleIndex"]]["id"] == result["ruleId"] == "unordered-read"
    assert result["level"] == "error"
    assert result["suppressions"] == []
    (location,), (related,) = result["locations"], result["relatedLocations"]
    assert location["physicalLocation"]["artifactLocation"] == {"uri": "kernel.py", "uriBaseId": "SRCROOT"}
    assert location["physicalLocation"]["region"]["startLine"] == 10
    region = related["physicalLocation"]["region"]
    assert KERNEL.splitlines()[4][region["startColumn"] - 1 : region["endColumn"] - 1] == "shared[thread] = 1.0"
    assert region["snippet"]["text"] == "shared[thread] = 1.0"
    assert related["physicalLocation"]["contextRegion"]["snippet"]["text"] == KERNEL.splitlines()[4]
    flows = result["codeFlows"][0]["threadFlows"]
    lines = [[at["location"]["physicalLocation"]["region"]["startLine"] for at in f["locations"]] for f in flows]
    assert lines == [[9, 5], [10]]
    (stack,) = result["stacks"]
    frames = [frame["location"]["physicalLocation"]["region"]["startLine"] for frame in stack["frames"]]
    assert frames == [5, 9]


@pytest.mark.parametrize("in_file", [False, True])
def test_sarif_has_the_line_of_the_ptx_where_there_is_no_other(in_file, tmp_path, monkeypatch):
    """PTX that was read from no file is in the log itself."""
    monkeypatch.chdir(tmp_path)
    text = MODULE.format(file="", at="// none")
    (tmp_path / "a kernel.ptx").write_text(text)
    module = cutepy.load_ptx(tmp_path / "a kernel.ptx" if in_file else text)
    with pytest.raises(HazardError) as caught, cutepy.simulate(sanitize=True):
        module.launch("shift", 1, 64)
    found = caught.value.hazards
    log = json.loads(json.dumps(found.to_sarif()))
    check_sarif(log)
    (one,) = log["runs"]
    for result, hazard in zip(one["results"], found, strict=True):
        for at, side in zip((*result["locations"], *result["relatedLocations"]), hazard.sides[::-1], strict=True):
            artifact, region = at["physicalLocation"]["artifactLocation"], at["physicalLocation"]["region"]
            if in_file:
                assert artifact == {"uri": "a%20kernel.ptx", "uriBaseId": "SRCROOT"}
                source = text
            else:
                assert artifact["uri"] == "shift.ptx"
                source = one["artifacts"][artifact["index"]]["contents"]["text"]
            line = source.split("\n")[region["startLine"] - 1]
            assert line[region["startColumn"] - 1 : region["endColumn"] - 1] == side.instruction.text
    pins(str(found))
    sides = [side for hazard in found.to_json()["hazards"] for side in (hazard["before"], hazard["after"])]
    assert {side["ptx_file"] for side in sides} == {str(tmp_path / "a kernel.ptx") if in_file else None}


def test_sarif_says_what_is_allowed(hazards):
    log = run(allow={"unordered-read": "only a hint"}).hazards.to_sarif()
    check_sarif(log)
    for result in log["runs"][0]["results"]:
        assert result["suppressions"] == [{"kind": "external", "status": "accepted", "justification": "only a hint"}]


def test_a_fingerprint_stays_where_lines_move(hazards, tmp_path):
    def fingerprint(found):
        return found.to_sarif()["runs"][0]["results"][0]["partialFingerprints"]["sides/v1"]

    before = fingerprint(hazards)
    assert re.fullmatch("[0-9a-f]{32}", before)
    (tmp_path / "kernel.py").write_text("# a line more\n" + KERNEL)
    module = MODULE.replace(" 9 0", " 10 0").replace(" 5 0", " 6 0")
    module = module.replace("{at} 10 0\n    ld", "{at} 11 0\n    ld")
    made = Run((), None, sanitize=True)
    text = module.format(file=f'.file 1 "{tmp_path}/kernel.py"', at=".loc 1")
    made.launch(KernelCall(LoadedModule(text), "shift", (1, 1, 1), (64, 1, 1)))
    assert [side.chain[0].line for side in made.hazards[0].sides] == [6, 11]
    assert fingerprint(made.hazards) == before


def test_advisories_fail_nothing(monkeypatch, tmp_path):
    advisory = Kind("unordered-read", KINDS["unordered-read"].meaning, "none", "advisory")
    monkeypatch.setitem(KINDS, "unordered-read", advisory)
    made = run()
    made.check_hazards()
    assert made.hazards == ()
    (advisory,) = made.hazards.advisories
    assert advisory.count == 2
    pins(str(made.hazards))
    assert {r["level"] for r in made.hazards.to_sarif()["runs"][0]["results"]} == {"note"}


def launch_and_fail(run, text):
    run.launch(KernelCall(LoadedModule(text), "shift", (1, 1, 1), (64, 1, 1)))
    raise AssertionError("the values are wrong")


def test_an_error_says_what_was_found_before(monkeypatch, tmp_path):
    """A result that is asserted, or a launch that hangs: neither hides the race that may be its cause."""
    monkeypatch.chdir(tmp_path)
    text = MODULE.format(file="", at="//")
    run = Run((), None, sanitize=True)
    with pytest.raises(AssertionError) as caught, run.checked():
        launch_and_fail(run, text)
    (note,) = caught.value.__notes__
    assert note == f"The sanitizer found before that, the likeliest cause first: {run.hazards}"
    pins(note)
    run = Run((), None, sanitize=True)
    with refuses(HazardError) as found, run.checked():
        launch_and_fail(run, text.replace("    ret;", "    bar.sync 1, 128;\n    ret;"))
    assert isinstance(found.value.__cause__, DeadlockError)
    assert [hazard.kind for hazard in found.value.hazards][-1] == "deadlock"
    with refuses(ValueError) as caught, Run((), None, sanitize=True).checked():
        raise ValueError("of the script")
    assert not hasattr(caught.value, "__notes__")


def hazards_of(before, after, outside=""):
    """Run the kernel with more before its first instruction and after its last one."""
    made = Run((), None, sanitize=True)
    body = MODULE.format(file=outside, at="// none").replace("ret;", f"{after}\nret;")
    body = body.replace("mov.u32 %r0", f"{before} mov.u32 %r0", 1)
    made.launch(KernelCall(LoadedModule(body), "shift", (1, 1, 1), (64, 1, 1)))
    return made.hazards


def test_what_was_found_first_comes_first():
    """The value read is kept, so that the read is more than an advisory."""
    read = ".shared .b8 more[8]; ld.shared.u32 %r4, [more]; st.global.u32 [kept], %r4;"
    kinds = [hazard.kind for hazard in hazards_of(read, "", ".global .b32 kept;")]
    assert kinds[0] == "uninitialised-read"
    assert "unordered-read" in kinds


def test_causes_come_first():
    """Bytes that nobody announced are seen last, and are nearer to the mistake than what they lead to."""
    uneven = """.shared .align 8 .b64 bar; setp.ne.u32 %p0, %r0, 0; @%p0 bra END;
    mbarrier.init.shared.b64 [bar], 1; mbarrier.arrive.expect_tx.shared.b64 _, [bar], 16; END:"""
    kinds = [hazard.kind for hazard in hazards_of(".reg .pred %p0;", uneven)]
    assert kinds[0] == "uneven-bytes"
    assert "unordered-read" in kinds


def test_a_read_that_came_before_the_write_is_told_once():
    """Of bytes that nothing had written, and that somebody writes later."""
    (hazard,) = hazards_of("ld.shared.u32 %r4, [data+504]; add.u32 %r4, %r4, 1;", "")[:1]
    assert hazard.kind == "unordered-read"
    pins(hazard.missing)
    assert hazard.before.what == "st write"
    assert not any(
        h.kind == "uninitialised-read" for h in hazards_of("ld.shared.u32 %r4, [data+504]; add.u32 %r4, %r4, 1;", "")
    )


def test_ptx_without_a_file_is_in_the_log_once_under_a_name_of_its_own():
    log = sarif._Log("")
    texts = [("a", "k"), ("b", "k"), ("a", "k"), ("c", "k"), ("d", "other"), ("e", ""), ("f", "kern"), ("g", "k<1>")]
    found = [log._in_log(ptx, kernel) for ptx, kernel in texts]
    assert [(one["uri"], one["index"]) for one in found] == [
        ("k.ptx", 0),
        ("k-2.ptx", 1),
        ("k.ptx", 0),
        ("k-3.ptx", 2),
        ("other.ptx", 3),
        ("kernel.ptx", 4),
        ("kern.ptx", 5),
        ("k_1_.ptx", 6),
    ]
    assert [one["location"]["uri"] for one in log.artifacts] == list(dict.fromkeys(one["uri"] for one in found))
    assert [one["contents"]["text"] for one in log.artifacts] == list("abcdefg")
    unknown = sarif._Log("")
    assert unknown._in_log("", "k")["uri"] == "k.ptx"
    assert "contents" not in unknown.artifacts[0]
