"""Kernels that the sanitizer was not written for, and mistakes in their sources: what is told first, at which line.

Each kernel of this folder is right: no hazards, and certified if nothing in it depends on the order of atomics. The
mistakes are in `mistakes.toml`. By default one fast mistake of each kernel is tried; one of each kind, and of each
near miss, with `-m integration`; the rest with `-m deep`. Kernels of `cutepy.device`'s blocks, which take seconds to
trace, are tried with `-m integration` and `-m deep` alone.
"""

import contextlib
import importlib.util
import tomllib
from pathlib import Path

import pytest

from cutepy.frontends import simulate
from cutepy.sim.errors import SimulationError
from cutepy.sim.sanitize import repairs

pytestmark = pytest.mark.dsl

pytest.importorskip("cutlass")

HERE = Path(__file__).parent
MISTAKES = {
    (kernel, name): mistake
    for kernel, named in tomllib.loads((HERE / "mistakes.toml").read_text()).items()
    for name, mistake in named.items()
}
KERNELS = {
    "ring_gemm": True,
    "duo": True,
    "votes": True,
    "pair": True,
    "turnstile": False,
    "relay": True,
    "states": True,
    "halves": True,
    "offsets": True,
    "mailbox": False,
    "attends": True,
    "derives": True,
}
"""Name -> whether it is certified."""
OF_BLOCKS = "attends", "derives"


def load(path):
    """Import a kernel's source."""
    spec = importlib.util.spec_from_file_location(f"strange_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def mutated(kernel, mistake):
    """Return a kernel's source with a mistake in it."""
    text = (HERE / f"{kernel}.py").read_text()
    for edit in mistake["edits"]:
        parts = text.split(edit["old"])
        at = edit.get("nth", 0) + 1
        assert len(parts) > at, f"{edit['old']!r} is not in {kernel}.py"
        assert "nth" in edit or len(parts) == 2, f"{edit['old']!r} is in {kernel}.py {len(parts) - 1} times"
        text = edit["old"].join(parts[:at]) + edit["new"] + edit["old"].join(parts[at:])
    return text


def lines_of(hazard, path):
    """Return the lines of a file that a hazard names: of its sides, and of near misses and the barrier that is told."""
    lines = path.read_text().split("\n")
    near = [line for one in hazard.near_misses if one.side is not None for line in one.side.chain]
    sides = [line for side in hazard.sides for line in side.chain]
    made = [] if hazard.made_at is None else [hazard.made_at]
    return [[lines[at.line - 1].strip() for at in each if at.file == str(path)] for each in (sides, near + made)]


@pytest.mark.parametrize(
    "kernel", [pytest.param(each, marks=pytest.mark.integration) if each in OF_BLOCKS else each for each in KERNELS]
)
def test_what_is_right_has_no_hazards(kernel):
    module = load(HERE / f"{kernel}.py")
    with simulate(sanitize=True) as run:
        module.main()
    assert run.hazards == ()
    assert all(certificate.is_certified for certificate in run.certificates) == KERNELS[kernel]


def mistakes():
    """Give each mistake as a test's parameters, with its marks."""
    kernels, kinds = set(), set()
    for (kernel, name), mistake in sorted(MISTAKES.items(), key=lambda item: not item[1].get("fast")):
        kind = mistake["told"][0], mistake.get("near")
        marks = pytest.mark.deep if kind in kinds else pytest.mark.integration
        if mistake.get("fast") and kernel not in kernels:
            marks = ()
        kernels.add(kernel)
        kinds.add(kind)
        yield pytest.param(kernel, name, marks=marks, id=f"{kernel}:{name}")


@pytest.mark.parametrize(("kernel", "name"), list(mistakes()))
def test_a_mistake_is_told(kernel, name, tmp_path, monkeypatch):
    """Without the assembler, which would tell that it repairs some of them."""
    monkeypatch.setattr(repairs, "assembly_of", lambda ptx: None)
    mistake = MISTAKES[kernel, name]
    text = mutated(kernel, mistake)
    path = tmp_path / f"{kernel}.py"
    path.write_text(text)
    module, error = load(path), ""
    run = simulate(sanitize=True)
    try:
        with run as simulation, contextlib.suppress(AssertionError):
            module.main()
    except SimulationError as raised:
        error = str(raised)
    kind, where = mistake["told"]
    if kind == "certified":
        assert simulation.hazards == ()
        assert all(certificate.is_certified for certificate in simulation.certificates)
    elif kind == "error":
        assert where in error
    else:
        assert simulation.hazards, error
        first = simulation.hazards[0]
        assert first.kind == kind
        sides, others = lines_of(first, path)
        assert any(line.startswith(where) for line in sides)
        assert any(line.startswith(mistake.get("names", "")) for line in sides + others)
        assert not any(c.is_certified and c.kernel == first.kernel for c in simulation.certificates)
        near = {one.kind for hazard in simulation.hazards for one in hazard.near_misses}
        assert near >= {*filter(None, [mistake.get("near")])}
