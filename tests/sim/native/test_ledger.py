"""Costs of compiling against those of numpy: time taken so far, and time to come."""

from types import SimpleNamespace

import pytest

from cutepy.sim.native import compiler, ledger
from cutepy.sim.native.blocks import HotBlock, _Entry
from cutepy.sim.native.ledger import Ledger
from tests.messages import refuses


class _Launch:
    """Something that can be referred to weakly."""


@pytest.fixture
def clock(monkeypatch):
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(ledger, "thread_time", lambda: clock.now)
    monkeypatch.setattr(ledger, "_CALL", 0.5)
    return clock


def _engine(begun=1, to_come=1.0):
    return SimpleNamespace(begun=begun, to_come=to_come, interruptions=0, launch=_Launch())


def _region(*numbers):
    return SimpleNamespace(entry=numbers[0], numbers=numbers)


def _run(numpys, clock, m, number, seconds):
    start = numpys.begin(m)
    clock.now += seconds
    numpys.charge(number, start)


def test_a_node_is_charged_from_where_the_one_before_ended(clock):
    numpys, m = Ledger(3), _engine()
    _run(numpys, clock, m, 0, 4.0)
    clock.now += 8.0  # lanes are brought together
    _run(numpys, clock, m, 1, 16.0)
    assert numpys.spent == [4.0, 24.0, 0.0]
    assert numpys.visits == [1, 1, 0]
    assert numpys.total == 28.0


def test_what_is_not_numpys_is_not_charged(clock):
    numpys, m = Ledger(3), _engine()
    _run(numpys, clock, m, 0, 1.0)
    clock.now += 2.0
    numpys.pause()
    clock.now += 100.0  # a region is written
    numpys.pause()
    _run(numpys, clock, m, 1, 4.0)
    assert numpys.spent == [1.0, 6.0, 0.0]
    clock.now += 100.0  # machine code ran
    numpys.interrupt()
    _run(numpys, clock, m, 2, 8.0)
    clock.now += 100.0  # processes were forked
    m.interruptions += 1
    _run(numpys, clock, m, 2, 16.0)
    assert numpys.spent == [1.0, 6.0, 24.0]


def test_what_is_expected_is_by_waves_to_come_and_earlier_launches(clock):
    numpys, m = Ledger(4), _engine(to_come=7.0)
    numpys.begin_wave(m)
    for number in (0, 1, 2):
        _run(numpys, clock, m, number, 2.0**number)
    region = _region(1, 2)
    assert numpys.expected(region, m) == (2 + 4 - 0.5) * 7
    later = _engine(to_come=3.0)
    numpys.begin_wave(later)
    assert numpys.expected(region, later) == 6.0
    _run(numpys, clock, later, 1, 10.0)
    assert numpys.expected(region, later) == 6.0 + (10 - 2 * 0.5) * 3
    numpys.begin_wave(later)
    assert numpys.expected(region, later) == 6.0 + (10 - 2 * 0.5) * 3
    later.begun, later.to_come = 3, 1.5
    assert numpys.expected(region, later) == 6.0 + (10 - 2 * 0.5) * 1.5 / 3
    numpys.pay(region, later)
    assert numpys.expected(region, later) == 0.0
    assert numpys.expected(_region(0), later) > 0
    later.begun = 5
    _run(numpys, clock, later, 2, 8.0)
    assert numpys.expected(region, later) == 8.0 * 1.5 / 2


def test_a_block_is_charged_what_its_translation_took(clock):
    def whole(g, registers, m):
        clock.now += 4.0
        return 7

    numpys, m = Ledger(2), _engine()
    program = SimpleNamespace(
        blocks=[whole, whole], flow=SimpleNamespace(blocks=[SimpleNamespace(instructions=["mov"])] * 2)
    )
    hot = SimpleNamespace(
        program=program, ledger=numpys, nodes=None, is_to_be_cut=lambda m: False, stop_of=lambda number: None
    )
    for number, spent in ((0, [4.0, 0.0]), (1, [4.0, 4.0]), (1, [4.0, 8.0])):
        assert HotBlock(hot, number)(None, [], m) == 7
        assert numpys.spent == spent
    assert (numpys.visits, numpys.total) == ([1, 2], 12.0)


def test_nodes_take_over_what_blocks_took(clock):
    numpys, m = Ledger(2), _engine(to_come=2.0)
    numpys.begin_wave(m)
    _run(numpys, clock, m, 0, 1.0)
    _run(numpys, clock, m, 1, 4.0)
    nodes = numpys.of_nodes(5, [0, 3].__getitem__)
    assert nodes.spent == [1.0, 0, 0, 4.0, 0]
    nodes.begin_wave(m)
    assert nodes.expected(_region(3), m) == (4 - 0.5) * 2
    assert nodes.total == 5.0


class _Compiler:
    """Has kept what begins with a letter."""

    def __init__(self, is_imported):
        self._is_imported = is_imported
        self.made = []

    def is_imported(self):
        return self._is_imported

    def kept(self, text):
        return text if text[0] == "k" else None

    def compiled(self, text):
        self.made.append(text)
        return text


@pytest.mark.parametrize("is_imported", [True, False])
def test_compiling_costs_nothing_where_it_was_done_before(monkeypatch, is_imported):
    monkeypatch.setattr(compiler, "_provided", [])
    monkeypatch.setattr(compiler, "_codes", {})
    found = _Compiler(is_imported)
    compiler.provide(found)
    assert compiler.seconds(["kept"]) == 0.0
    once, twice = compiler.seconds(["new\n"]), compiler.seconds(["new\n", "other\n", "kept"])
    assert 0 < twice - once < 0.1
    assert (once > 0.5) == (not is_imported)
    assert compiler.seconds(["new\n" * 1000]) > compiler.seconds(["new\n" * 10]) > once
    assert [compiler.compiled(text) for text in ("kept", "new\n", "new\n")] == ["kept", "new\n", "new\n"]
    assert found.made == ["new\n"]
    assert compiler.seconds(["new\n"]) == 0.0


@pytest.mark.parametrize("applies", [True, False])
def test_the_time_that_machine_code_is_looked_for_and_runs_is_no_nodes(clock, applies):
    def runs(*_):
        clock.now += 100.0
        return applies

    numpys, m = Ledger(3), _engine()
    _run(numpys, clock, m, 0, 1.0)
    entry = _Entry(SimpleNamespace(ledger=numpys), None, 2)
    entry._codes = [SimpleNamespace(applies=runs, run=runs, lacks=0.0, region=SimpleNamespace(end=1))]
    assert (entry.run(None, [], m) is None) == (not applies)
    _run(numpys, clock, m, 1, 4.0)
    assert numpys.spent == [1.0, 4.0, 0.0]


def test_where_there_is_no_compiler_there_is_no_code(monkeypatch):
    monkeypatch.setattr(compiler, "_provided", [])
    monkeypatch.setattr(compiler, "_codes", {})
    assert not compiler.is_there()
    with refuses(ImportError):
        compiler.compiled("new")
