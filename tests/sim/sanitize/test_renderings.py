"""Hazards of any names and sources, in every form: none fails, and all tell the same facts."""

import contextlib
import html
import io
import json
import re

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from rich.console import Console
from rich.text import Text

from cutepy.sim.advice import Diagnosis
from cutepy.sim.machine.interleaving import RandomSchedule
from cutepy.sim.ptx.model import Instruction, SourceLine
from cutepy.sim.replay import Divergence, Exploration, Report, Witness
from cutepy.sim.sanitize import Hazard, Hazards, Side
from cutepy.sim.sanitize.certificate.certificates import Certificate
from cutepy.sim.sanitize.hazards import InsertionPoint, NearMiss, WaitingThreads
from cutepy.sim.sanitize.kinds import KINDS
from cutepy.sim.sanitize.reports.sarif import _sentence
from tests.messages import pins
from tests.sim.sanitize.sarif_rules import check_sarif

ODD = "[bold]x[/bold] [/] <b>&amp;</b> \t é 漢字 \U0001f642 \u202e \x1b[31m \x00 \\ %20 # ? : 'q' \"q\" "
FIXED = [
    "st write",
    "warp 1, lane 3",
    ODD,
    "_Z" + "x" * 3000,
    "a: b",
    "\udc80",
    "=",
    "--> ",
    "a\u2028b",
    "漢" * 200,
    "[red]",
]
NAMES = st.sampled_from(FIXED) | st.text(min_size=1, max_size=6).map(
    lambda name: name.replace("\n", " ").strip() or "x"
)
SOURCES = ("shared[thread] = 1", "\tx = '漢字[bold]'  # \x1b[31m", "", "f(", "y = 2 # é", "[/]", "    z\u2028= 3")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Have files to name: of Python, of C++, not of text, and none."""
    made = tmp_path_factory.mktemp("sources [bold] é #")
    (made / "a.py").write_text("\n".join(SOURCES) + "\n", encoding="utf-8")
    (made / "漢字 %.cu").write_text("\n".join(SOURCES) + "\n", encoding="utf-8")
    (made / "raw.py").write_bytes(b"\xff\xfe\x00" * 40)
    return made


@st.composite
def lines(draw, folder):
    names = [str(folder / name) for name in ("a.py", "漢字 %.cu", "raw.py", "gone.py")]
    found = None
    for _ in range(draw(st.integers(0, 3))):
        file = draw(st.sampled_from([*names, "<string>", "rel/a b.py", "\udc80.py", "x" * 300, ODD.replace("\0", "")]))
        found = SourceLine(file, draw(st.integers(1, 9)), found)
    return found


@st.composite
def sides(draw, folder):
    text = draw(st.sampled_from(["st.shared.u32 [%r1], %r0", "wgmma.mma_async.sync  {%f0,\n %f1}", "[bold]", ODD]))
    instruction = Instruction(
        0, text.split()[0], (), None, text, source=draw(lines(folder)), line=draw(st.integers(1, 5))
    )
    ptx = draw(st.sampled_from(["", f"{text};", f"\n  {text};\n\n{text}; {text};\n"]))
    return Side(
        draw(NAMES),
        draw(NAMES),
        draw(st.sampled_from([None, instruction])),
        draw(st.none() | st.tuples(*[st.integers(0, 2**31)] * 3)),
        draw(st.none() | st.integers(0, 31)),
        draw(st.none() | st.integers(0, 31)),
        draw(st.just("") | NAMES),
        ptx=ptx,
        ptx_file=draw(st.sampled_from(["", "", "k [bold].ptx", str(folder / "gone é.ptx")])),
    )


other = st.builds(Diagnosis, st.just("simulator-error"), message=st.sampled_from(["", "wait"]) | NAMES, fix=NAMES)
diagnoses = other | st.builds(Diagnosis, st.just("read-first"), otherwise=other)


@st.composite
def hazards(draw, folder):
    allowed = draw(st.booleans())
    found = Hazard(
        draw(st.sampled_from([*KINDS])),
        draw(st.just("") | NAMES),
        draw(NAMES),
        draw(st.none() | sides(folder)),
        draw(sides(folder)),
        draw(diagnoses),
        draw(st.integers(1, 2**40)),
        draw(st.none() | st.integers(0, 2**63)),
        draw(st.none() | st.integers(1, 2**50)),
        draw(st.just("") | NAMES),
        draw(NAMES) if allowed else "",
        draw(st.sampled_from(["", "a.py:3"])) if allowed else "",
    )
    policy = draw(st.sampled_from([None, RandomSchedule(3)]))
    witness = Witness(found, draw(NAMES), draw(st.none() | NAMES), "values", policy)
    line, side = lines(folder).filter(bool), sides(folder)
    besides = {
        "witness": draw(st.sampled_from([None, witness])),
        "between": draw(st.none() | st.builds(InsertionPoint, line, line, st.booleans())),
        "waits": draw(st.just(()) | st.tuples(*[st.builds(WaitingThreads, NAMES, NAMES, st.tuples(side))] * 2)),
        "near_misses": draw(st.just(()) | st.tuples(st.builds(NearMiss, NAMES, diagnoses, st.none() | side))),
        "made_at": draw(st.none() | line),
    }
    return Hazard(**{**vars(found), **besides})


@st.composite
def reports(draw, folder):
    kernel, what = draw(NAMES), draw(NAMES)
    divergences = (Divergence("schedule:3", "values", what),) * draw(st.integers(0, 5))
    exploration = Exploration(kernel, 0, draw(st.sampled_from([range(4), range(0)])), divergences, 4)
    reasons = draw(st.sampled_from([(), (what,)]))
    certificate = Certificate(kernel, (1, 1, 1), (32, 1, 1), (1, 1, 1), 1, 2, reasons, (), ())
    found = Hazards(draw(st.lists(hazards(folder), max_size=1)))
    return Report(found, (exploration,) * draw(st.integers(0, 2)), (certificate,) * draw(st.integers(0, 2)))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
@given(data=st.data())
def test_every_form_takes_them_and_tells_the_same(folder, data):
    report = data.draw(reports(folder))
    with contextlib.chdir(folder):
        text, page = str(report), report._repr_html_()
        facts = json.loads(json.dumps(report.to_json()))
        log = json.loads(json.dumps(report.to_sarif("script.py")))
        lines = report.lines
    check_sarif(log)
    assert html.unescape(re.sub(r"<[^<>]*>", "", page)).splitlines() == [
        "".join(piece for piece, _ in line) for line in lines
    ]
    shown = io.StringIO()
    console = Console(file=shown, highlight=False, soft_wrap=True, force_terminal=False)
    for line in lines:
        console.print(Text.assemble(*line) if line else "")
    assert [line.rstrip() for line in shown.getvalue().rstrip("\n").split("\n")] == text.rstrip("\n").split("\n")
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", text)
    text.encode()

    every = report.hazards.every
    told = [*facts["hazards"], *facts["advisories"], *facts["allowed"]]
    results = log["runs"][0]["results"]
    assert [one["kind"] for one in told] == [one["ruleId"] for one in results] == [hazard.kind for hazard in every]
    assert [one["count"] for one in told] == [one["occurrenceCount"] for one in results]
    for hazard, one, result in zip(every, told, results, strict=True):
        whys = [near.why.encode(errors="backslashreplace").decode() for near in hazard.near_misses]
        assert [near["why"] for near in one["near_misses"]] == whys
        assert len(one["waits"]) == len(hazard.waits)
        assert (one["between"] is None) == (hazard.between is None)
        assert one["address"] == hazard.address
        assert one["diagnosis"] == hazard.diagnosis.case
        assert (one["witness"] is None) == (hazard.witness is None)
        assert bool(result["suppressions"]) == bool(hazard.allowed)
    assert len(facts["schedules"]) == len(report.explorations)
    shown_ones = (*facts["hazards"], *facts["advisories"])
    played = [one for one in shown_ones if one["witness"] is not None and one["witness"]["policy"] is not None]
    assert text.count("to play it: cutepy.simulate") == len(played)


def test_marks_stand_below_what_they_mark(folder):
    """Below characters that are wide, none, or a tab."""
    source = SourceLine(str(folder / "a.py"), 2)
    side = Side("st write", "warp 0", Instruction(0, "st", (), source=source, line=1))
    (line, marks) = str(
        Hazards([Hazard("unordered-read", "k", "there", None, side, KINDS["unordered-read"].diagnosis)])
    ).splitlines()[3:5]
    assert line.startswith("   2 |     x = '漢字[bold]'  # ")
    pins(marks)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("nothing waits for it", "Nothing waits for it."),
        ("a wait for a.b", "A wait for a.b."),
        ("fence.proxy.async is missing", "fence.proxy.async is missing."),
        ("wait_group comes late", "wait_group comes late."),
        ("`fence` is missing", "`fence` is missing."),
        ("`bar.sync` is missing", "`bar.sync` is missing."),
        ("x", "X."),
    ],
)
def test_sentences_begin_large_unless_by_code(text, sentence):
    assert _sentence(text) == sentence
