"""The kernels that confirm hazards: each has its hazard, mended none, and its scripts do on a GPU what they expect."""

import json
import runpy

import pytest

import cutepy
from cutepy.binaries.ptxas import assemble, find_ptxas
from cutepy.sim.replay.reproducers import gpu_runner
from tests.sim.confirm.mistakes import FROM_PAGES, MISTAKES
from tests.sim.confirm.on_a_gpu import run_all, scopes
from tests.sim.confirm.tables import kinds_table, scopes_table
from tests.sim.confirm.writing import write
from tests.sim.replay.test_gpu_runner import SimulatedGpu

KINDS = sorted({mistake.kind for mistake in MISTAKES.values()})
OF_PAGES = sorted({mistake.kind for mistake in FROM_PAGES.values()})


class AnyGpu(SimulatedGpu):
    """Launches with clusters, and dependent launches."""

    def launch(self, function, what, parameters, stream):
        loaded, name = function
        if name == "fill":
            return
        with cutepy.simulate():
            loaded.launch(
                name,
                what["grid"],
                what["block"],
                parameters,
                smem=what["smem_bytes"],
                cluster=tuple(what["cluster"]),
                programmatic=what["programmatic"],
                known=self.blocks.values(),
            )


FEW = ("unordered-read", "deadlock")
"""Values of another order, and a launch that hangs."""


def marks_of(kind):
    """Two kinds are tried by default, every other one of the rest in `integration`, the others in `deep`."""
    n = [*KINDS, *OF_PAGES].index(kind)
    often = [] if kind in FEW else [pytest.mark.integration if n % 3 == 0 else pytest.mark.deep]
    return [*often, *([pytest.mark.dsl] if kind in OF_PAGES else [])]


@pytest.mark.first(3)
@pytest.mark.parametrize("kind", [pytest.param(kind, marks=marks_of(kind)) for kind in (*KINDS, *OF_PAGES)])
def test_scripts_of_a_mistake_and_of_what_mends_it_do_as_the_simulator(kind, tmp_path, monkeypatch, capsys):
    write(tmp_path, [kind])
    monkeypatch.setattr(gpu_runner, "Gpu", AnyGpu)
    scripts = sorted(tmp_path.glob("[0-9]*.py"))
    assert len(scripts) == 2
    for script in scripts:
        what = runpy.run_path(str(script))["WHAT"]
        for way in what["ways"]:
            capsys.readouterr()
            assert gpu_runner.child(what, way, 1) == 0
            assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [{"digest": what["expected"]}]


CASE = {"script": "00_race", "kind": "unordered-read", "shown": "values"}


@pytest.mark.parametrize(
    ("shown", "wrong", "right", "after", "how"),
    [
        ("values", "as it is: other values", "nothing differs", "b", "as it is: other values"),
        ("hang", "as it is: hang", "nothing differs", "a", "as it is: hang"),
        ("values", "as it is: error", "as it is: error", "a", ""),  # there is no GPU
        ("values", "nothing differs", "nothing differs", "b", ""),
        ("as simulated", "nothing differs", "nothing differs", "b", "wrong as simulated, in every launch"),
        ("as simulated", "nothing differs", "nothing differs", "a", ""),
        ("values", "not run", "nothing differs", "b", ""),
    ],
)
def test_what_confirms_a_mistake(shown, wrong, right, after, how, tmp_path, monkeypatch):
    for name, left in (("00_race.py", "a"), ("00_race_mended.py", after)):
        (tmp_path / name).write_text(f'"after": "{left}"\n')
    monkeypatch.setattr(run_all, "HERE", tmp_path)
    monkeypatch.setattr(run_all, "run", lambda name: {"verdict": right if "mended" in name else wrong})
    judged = run_all.judged({**CASE, "shown": shown})
    assert (judged["confirmed"], judged["how"]) == (bool(how), how)


def test_tables_of_what_a_gpu_did():
    ways = [
        "as it is: 100 launches, 100 as simulated, 0 as in another order (0.9 s)",
        "the first side delayed: 3 launches, 3 as simulated, 0 as in another order; hang: no end after 3 s (4.1 s)",
    ]
    case = {
        **CASE,
        "name": "no barrier",
        "witness": "unordered-read: holding back it: values: 4 bytes",
        "confirmed": True,
    }
    scopes = [{"name": "shared", "rounds": 1000, "old_words": 2, "flags_not_seen": 0, "ended": ""}]
    results = {"results": [{**case, "mistake": {"ways": ways}}], "scopes": {"lines": [json.dumps(scopes)]}}
    row = "| `unordered-read` | no barrier | the first side delayed: hang | values |"
    assert kinds_table(results).splitlines()[2:] == [row]
    assert scopes_table(results).splitlines()[2:] == ["| shared | 1,000 | 2 | 0 |"]


@pytest.mark.integration
@pytest.mark.parametrize("name", scopes.VARIANTS)
def test_ptxas_takes_the_variants_of_scopes(name):
    if not find_ptxas():
        pytest.skip("there is no ptxas")
    assemble(scopes.VARIANTS[name])
