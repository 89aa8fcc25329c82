"""Kernels that the sanitizer was not written for, and mistakes in their sources: what is told first, at which line.

Each kernel of this folder is right: no hazards, and certified if nothing in it depends on the order of atomics. The
mistakes are in `mistakes.toml`. `attends` and `derives` are attention written from the documentation alone: a report of
one of their mistakes names a line that was changed, or the place of what was left out, unless the mistake says why not.

By default one fast mistake of each kernel is tried; one of each kind, and of each near miss, with `-m integration`; the
rest with `-m deep`. Kernels of `cutepy.device`'s blocks, which take seconds to trace, are tried with `-m integration`
and `-m deep` alone.
"""

import ast
import difflib
import importlib.util
import re
import tomllib
import traceback
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


def lines_named(hazard, path):
    """Return the lines of a file that the report of a hazard names, and those that something is missing between."""
    others = [one.side for one in hazard.near_misses if one.side is not None]
    others += [side for wait in hazard.waits for side in wait.sides]
    chains = [line for side in (*hazard.sides, *others) for line in side.chain]
    found = {at.line for at in (*chains, hazard.made_at) if at is not None and at.file == str(path)}
    found.update(int(line) for line in re.findall(rf"{re.escape(str(path))}:(\d+)", str(hazard)))
    between = hazard.between
    if between is None or {between.after.file, between.before.file} != {str(path)}:
        return found, set()
    after, before = between.after.line, between.before.line
    if not between.is_next_round:
        return found, {*range(after, before + 1)}
    loops = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.For)]
    spans = [(loop.lineno, loop.end_lineno) for loop in loops if loop.lineno <= before and after <= loop.end_lineno]
    start, end = max(spans, default=(before, after))
    return found, {*range(start, before + 1), *range(after, end + 1)}


def changed_lines(before, after):
    """Return the lines of statements that are new, and those of statements that something was left out between."""
    lines = [text.split("\n") for text in (before, after)]
    statements = [node for node in ast.walk(ast.parse(after)) if isinstance(node, ast.stmt)]
    whole = [range(node.lineno, node.end_lineno + 1) for node in statements]
    heads = [
        range(node.lineno, node.body[0].lineno) if hasattr(node, "body") else every
        for node, every in zip(statements, whole, strict=True)
    ]
    found = set()
    for what, _, _, first, last in difflib.SequenceMatcher(None, *lines, autojunk=False).get_opcodes():
        if what == "delete":
            following = next((n for n in range(first, len(lines[1])) if lines[1][n].strip()), first) + 1
            found.update(*(at for at in whole if at.start == following), *(at for at in heads if at.stop == first + 1))
        elif what != "equal":
            found.update(*(at for at in heads if any(line in at for line in range(first + 1, last + 1))))
    return found


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
    module, error, is_wrong, frames = load(path), "", False, []
    run = simulate(sanitize=True)
    try:
        with run as simulation:
            try:
                module.main()
            except AssertionError:
                is_wrong = True
    except (SimulationError, ValueError) as raised:
        error, frames = str(raised), traceback.extract_tb(raised.__traceback__)
    kind, where = mistake["told"]
    if kind in ("certified", "values"):
        assert simulation.hazards == ()
        assert all(certificate.is_certified for certificate in simulation.certificates)
        assert is_wrong == (kind == "values")
    elif kind == "refused":
        assert mistake["says"] in error
        assert [frame.line for frame in frames if frame.filename == str(path)][-1].startswith(where)
    elif kind == "error":
        assert where in error
    else:
        assert simulation.hazards, error
        first = simulation.hazards[0]
        assert first.kind == kind
        assert mistake.get("says", "") in str(first)
        sides, others = lines_of(first, path)
        assert any(line.startswith(where) for line in sides)
        assert any(line.startswith(mistake.get("names", "")) for line in sides + others)
        assert not any(c.is_certified and c.kernel == first.kernel for c in simulation.certificates)
        near = {one.kind for hazard in simulation.hazards for one in hazard.near_misses}
        assert near >= {*filter(None, [mistake.get("near")])}
        if kernel in OF_BLOCKS:
            named, missing = lines_named(first, path)
            changed = changed_lines((HERE / f"{kernel}.py").read_text(), text)
            is_told = bool(changed & (named | missing))
            assert is_told == ("elsewhere" not in mistake), (named, missing, changed)
