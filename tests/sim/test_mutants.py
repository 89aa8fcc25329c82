"""The mutator of kernels: what it changes of PTX, and that a mutant which nobody reports or explains is told."""

import json
import os
import signal
import time
from dataclasses import asdict

import pytest

from cutepy.sim import Run
from cutepy.sim.machine.launch import KernelCall
from cutepy.sim.machine.loaded_module import LoadedModule
from tests.sim.mutants.__main__ import Tried, main, report
from tests.sim.mutants.operators import Mutant, mutants
from tests.sim.mutants.pool import verdicts
from tests.sim.mutants.reasons import Reason, read_reasons
from tests.sim.mutants.statements import sequences, statements
from tests.sim.mutants.table import OUTCOMES, class_of, read, rows
from tests.sim.mutants.trying import Trial, Verdict

PTX = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u32 n)
{{
.reg .b32 %r<20>; .reg .b64 %rd<4>; .reg .pred %p<9>;
{}
}}
"""


def changed(body):
    """Give what becomes of a body: (operator, the part that is other)."""
    whole = PTX.format(body)
    return {(m.operator, m.what.partition(" -> ")[2] or m.what) for m in mutants(whole, "k")}


def test_statements_are_found_among_comments_labels_and_scopes():
    body = """// bar.sync 7; not this one
    bar.sync 0; { .reg .pred P1;
    WAIT: mbarrier.try_wait.parity.shared.b64 P1, [%r1], %r2; // spins
    @!P1 bra WAIT; }
    .loc 1 20 4
    @%p1 mbarrier.arrive.shared.b64 %rd1, [%r1]; ret;"""
    found = [(s.opcode, s.guard) for s in statements(PTX.format(body), "k") if s.synchronises]
    assert found == [
        ("bar.sync", None),
        ("mbarrier.try_wait.parity.shared.b64", None),
        ("mbarrier.arrive.shared.b64", "%p1"),
    ]


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        (
            "bar.sync 1, 64;",
            {
                ("removed", "bar.sync 1, 64;"),
                ("weakened", "bar.arrive 1, 64;"),
                ("count", "bar.sync 1, 96;"),
                ("count", "bar.sync 1, 32;"),
                ("barrier", "bar.sync 2, 64;"),
            },
        ),
        (
            "bar.arrive %r1, 64;",
            {
                ("removed", "bar.arrive %r1, 64;"),
                ("count", "bar.arrive %r1, 96;"),
                ("count", "bar.arrive %r1, 32;"),
                ("barrier", "{ .reg .b32 MUT; add.s32 MUT, %r1, 1; bar.arrive MUT, 64; }"),
            },
        ),
        (
            "@%p1 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r1];",
            {
                ("removed", "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r1];"),
                ("weakened", "@%p1 mbarrier.arrive.release.cta.shared::cluster.b64 _, [%r1];"),
                ("weakened", "@%p1 mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%r1];"),
            },
        ),
        (
            "@%p1 mbarrier.init.shared.b64 [%r1], 4;",
            {
                ("removed", "mbarrier.init.shared.b64 [%r1], 4;"),
                (
                    "count",
                    "{ .reg .b32 MUT; add.s32 MUT, 4, 1; @%p1 mbarrier.init.shared.b64 [%r1], MUT; }",
                ),
                (
                    "count",
                    "{ .reg .b32 MUT; add.s32 MUT, 4, -1; @%p1 mbarrier.init.shared.b64 [%r1], MUT; }",
                ),
            },
        ),
        (
            "wgmma.wait_group.sync.aligned 1;",
            {
                ("removed", "wgmma.wait_group.sync.aligned 1;"),
                ("count", "wgmma.wait_group.sync.aligned 2;"),
            },
        ),
        (
            "fence.proxy.async.shared::cta;",
            {
                ("removed", "fence.proxy.async.shared::cta;"),
                ("weakened", "fence.acq_rel.cta;"),
                ("weakened", "fence.proxy.async.global;"),
            },
        ),
        (
            "barrier.cluster.arrive.release.aligned;",
            {
                ("removed", "barrier.cluster.arrive.release.aligned;"),
                ("weakened", "barrier.cluster.arrive.relaxed.aligned ;"),
            },
        ),
    ],
)
def test_each_synchronisation_is_changed_in_all_ways(statement, expected):
    assert changed(statement) == expected


def test_a_wait_that_is_removed_is_over_and_everybody_is_elected():
    whole = PTX.format("mbarrier.try_wait.parity.shared.b64 %p1, [%r1], 0;\nelect.sync %r2|%p2, -1;")
    removed = [m.ptx for m in mutants(whole, "k") if m.operator == "removed"]
    assert "setp.eq.u32 %p1, 0, 0;" in removed[0]
    assert "setp.eq.u32 %p2, 0, 0;" in removed[1]


def test_neighbours_change_places_unless_one_needs_the_other():
    body = "mov.u32 %r9, 3; st.shared.u32 [%r1], %r9; add.u32 %r3, %r9, 1; bar.sync 0; ld.shared.u32 %r4, [%r3];"
    moved = {(m.what): m.ptx for m in mutants(PTX.format(body), "k") if m.operator == "moved"}
    assert set(moved) == {"st.shared.u32 [%r1], %r9; <-> bar.sync 0;", "bar.sync 0; <-> ld.shared.u32 %r4, [%r3];"}
    text = moved["st.shared.u32 [%r1], %r9; <-> bar.sync 0;"]
    assert text.index("bar.sync") < text.index("st.shared") < text.index("add.u32") < text.index("ld.shared")


def test_what_a_value_comes_from_moves_along_and_what_it_changes_stays():
    depends = "atom.shared.add.u32 %r5, [%r1], 1; add.u32 %r6, %r5, 1; mbarrier.arrive.shared.b64 _, [%r6];"
    assert not [m for m in mutants(PTX.format(depends), "k") if m.operator == "moved"]
    along = "st.shared.u32 [%r1], 1; add.u32 %r6, %r7, 8; mbarrier.arrive.shared.b64 _, [%r6];"
    (moved,) = [m.ptx for m in mutants(PTX.format(along), "k") if m.operator == "moved"]
    assert moved.index("add.u32") < moved.index("mbarrier") < moved.index("st.shared")


def test_a_branch_over_statements_moves_with_them_and_loops_keep_theirs():
    body = """st.shared.u32 [%r1], 1;
    @%p1 bra OVER;
    mbarrier.arrive.shared.b64 _, [%r2];
    OVER: LOOP: bar.sync 0; @%p2 bra LOOP; ret;"""
    whole = PTX.format(body)
    assert [[u.key.opcode for u in run if u.matters] for run in sequences(whole, "k") if len(run) > 1] == [
        ["st.shared.u32", "mbarrier.arrive.shared.b64"]
    ]
    (moved,) = [m.ptx for m in mutants(whole, "k") if m.operator == "moved"]
    assert moved.index("bra OVER") < moved.index("OVER:") < moved.index("st.shared")


@pytest.mark.integration
def test_mutants_are_tried_apart_and_what_dies_or_goes_on_costs_no_other():
    def of(mutant):
        if mutant.line == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        if mutant.line == 2:
            time.sleep(60)
        if mutant.line == 3:
            raise KeyError("x")
        return Verdict("hazard", "told")

    given = [Mutant("removed", "bar.sync 0;", line, "") for line in range(5)]
    found = {m.line: (v.outcome, v.told) for m, v, _ in verdicts(of, given, jobs=2, seconds=2)}
    assert found == {
        0: ("hazard", "told"),
        1: ("crash", "its process died"),
        2: ("endless", "2 s"),
        3: ("crash", "KeyError: 'x'"),
        4: ("hazard", "told"),
    }


def test_a_mutant_that_hangs_is_a_deadlock_unless_something_else_is_told():
    body = """.shared .b8 x[256];
    mov.u32 %r1, %tid.x; shl.b32 %r1, %r1, 2; mov.u32 %r2, x; add.u32 %r3, %r1, %r2; xor.b32 %r4, %r1, 252;
    add.u32 %r4, %r4, %r2; st.shared.u32 [%r3], %r1;
    bar.sync 1, 64;
    ld.shared.u32 %r5, [%r4];
    bar.sync 2, 64;
    ret;"""
    whole = PTX.format(body).replace(".param .u32 n", "")
    trial = Trial(Run((), None), KernelCall(LoadedModule(whole), "k", (1, 1, 1), (64, 1, 1)))
    lines = {text.strip(): n for n, text in enumerate(whole.splitlines(), 1)}

    def verdict(old, new):
        return trial.verdict(Mutant("count", old, lines[old], whole.replace(old, new))).outcome

    assert verdict("bar.sync 2, 64;", "bar.sync 2, 96;") == "deadlock"
    assert verdict("bar.sync 1, 64;", "bar.sync 1, 96;") == "deadlock"
    assert verdict("bar.sync 1, 64;", "bar.arrive 1, 64;") == "hazard"
    race = whole.replace("bar.sync 1, 64;", "bar.arrive 1, 64;").replace("bar.sync 2, 64;", "bar.sync 2, 96;")
    assert trial.verdict(Mutant("both", "", lines["bar.sync 1, 64;"], race)).outcome == "hazard"


@pytest.mark.integration
def test_a_run_goes_on_from_its_record(tmp_path, capsys):
    record = tmp_path / "record.json"
    options = ["handwritten", "--only", "wait_group", "--json", str(record)]
    assert main([*options, "--part", "1/2"]) == 0
    half = record.read_text()
    assert main([*options, "-j", "2"]) == 0
    assert f"{len(half.splitlines())} of them recorded" in capsys.readouterr().out
    assert record.read_text().startswith(half)
    assert len(record.read_text().splitlines()) > len(half.splitlines())


def test_reasons_are_read_from_bullets(tmp_path):
    page = tmp_path / "silent.md"
    page.write_text("# Title\n\n- `a: removed at .*`  Because\n  of this.\n- some `b.*: x`  That.\n\nText.\n")
    assert read_reasons(page) == [
        Reason("a: removed at .*", "Because of this."),
        Reason("b.*: x", "That.", always=False),
    ]
    assert read_reasons(page)[0].explains("a: removed at line 3: bar.sync 0;")
    assert Reason("a: x  # wait.*", "").explains("a: x", "wait(1)")
    assert not Reason("a: x  # wait.*", "").explains("a: x", "release(1)")
    assert not read_reasons(page)[0].explains("ab: removed at line 3: bar.sync 0;")


def test_all_reasons_can_be_read():
    for reason in read_reasons():
        assert reason.argument
        assert not reason.explains("nothing: at all")


@pytest.mark.parametrize(
    ("outcome", "told", "status"), [("silent", "", 0), ("silent", "wrong if schedule:3", 1), ("wrong", "", 1)]
)
def test_reasons_are_for_what_is_silent_under_all_schedules(outcome, told, status):
    tried = Tried(
        "a", "removed", "bar.sync", 1, "bar.sync 0;", outcome, told, 0.1, "", "a: removed at line 1: bar.sync 0;"
    )
    assert report([tried], [Reason("a: removed.*", "Because.")], whole=False) == status


def test_records_are_counted_by_class(tmp_path):
    def of(what, outcome, told=""):
        name = f"handwritten: weakened at line 3: {what}"
        facts = ("handwritten", "weakened", "", 3, what, outcome, told, 0.1, "", name, "")
        return json.dumps(asdict(Tried(*facts)))

    expects = "mbarrier.arrive.expect_tx.shared.b64 _, [a], 1;"  # of which silent.md says why it may be relaxed
    path = tmp_path / "record.json"
    path.write_text(
        "\n".join((of(expects, "silent"), of(expects, "silent", "wrong if late"), of("fence.proxy.async;", "crash")))
    )
    found = rows(read(path), lambda one: class_of(one["what"]), ["proxy fences", "mbarrier: arrivals, counts, bytes"])
    parts = [[part.strip() for part in line.strip("|").split("|")] for line in found]
    told = [(name, total, dict(zip(OUTCOMES, counts, strict=True))) for name, total, *counts in parts]
    assert [(name, total, each["explained"], each["silent"]) for name, total, each in told] == [
        ("proxy fences", "1", "", "1"),
        ("mbarrier: arrivals, counts, bytes", "2", "1", "1"),
        ("all", "3", "1", "2"),
    ]


@pytest.mark.deep
@pytest.mark.integration
def test_every_mutant_of_the_handwritten_pipeline_is_reported_or_explained():
    assert main(["handwritten"]) == 0


@pytest.mark.integration
def test_a_silent_mutant_without_a_reason_is_told(monkeypatch, capsys):
    monkeypatch.setattr("tests.sim.mutants.__main__.read_reasons", list)
    assert main(["handwritten", "--only", "weakened.*expect_tx"]) == 1
    assert "silent" in capsys.readouterr().out


@pytest.mark.integration
def test_a_reason_for_what_is_reported_is_told(monkeypatch, capsys):
    wrong = [Reason("handwritten: removed at line .*: fence.proxy.*", "Nobody needs fences.")]
    monkeypatch.setattr("tests.sim.mutants.__main__.read_reasons", lambda: wrong)
    assert main(["handwritten", "--only", "removed.*fence.proxy"]) == 1
    assert "in spite of" in capsys.readouterr().out
