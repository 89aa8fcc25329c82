"""The assembler is asked once about each module, and what it says is kept on the disk for later processes."""

import dataclasses

import pytest

from cutepy.binaries.cubin import KernelResources
from cutepy.binaries.ptxas import Advice, Assembly, AssemblyError
from cutepy.binaries.spills import Spill
from cutepy.frontends import assembler

ADVICE = Advice("C7510", "serialised", "k0", 7)
SPILLS = Spill(7, 4, 0, True, False), Spill(None, 0, 4, False, False)


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """Modules that are assembled; their text says how many bytes each kernel stores and loads, or what goes wrong."""
    found = []

    def assemble(ptx):
        found.append(ptx)
        if ptx == "refused":
            raise AssemblyError(ptx)
        kernels = [tuple(map(int, kernel.split())) for kernel in ptx.removeprefix("dark ").split(";")]
        threads = [None, (32, 1, 1)]
        resources = [KernelResources(f"k{n}", 40, 0, 0, *each, threads[n % 2]) for n, each in enumerate(kernels)]
        return Assembly("1", tuple(resources), (ADVICE,), ptx.encode())

    def spills(image, kernel):
        found.append(kernel)
        if image.startswith(b"dark"):
            raise assembler_error
        return SPILLS

    from cutepy.binaries import ptxas
    from cutepy.binaries.sass import DisassemblyError

    assembler_error = DisassemblyError("none")
    tool = tmp_path / "ptxas"
    tool.write_text("one")
    monkeypatch.setattr(assembler, "find_ptxas", lambda: [tool])
    monkeypatch.setattr(ptxas, "spills", spills)
    monkeypatch.setattr(assembler, "assemble", assemble)
    monkeypatch.setattr(assembler, "_answers", {})
    monkeypatch.setenv("CUTEPY_CACHE", "on")
    monkeypatch.setenv("CUTEPY_CACHE_DIR", str(tmp_path / "cache"))
    return found


@pytest.mark.parametrize("ptx", ["0 0", "8 0", "0 8", "0 0;4 4", "0 0;0 0"])
def test_an_answer_is_kept_for_this_process_and_for_others(asked, ptx, monkeypatch):
    first = assembler.ask_ptxas(ptx)
    assert assembler.ask_ptxas(ptx) is first
    spilled = [f"k{n}" for n, kernel in enumerate(ptx.split(";")) if kernel != "0 0"]
    assert asked == [ptx, *spilled]
    monkeypatch.setattr(assembler, "_answers", {})
    second = assembler.ask_ptxas(ptx)
    assert second is not first
    assert asked == [ptx, *spilled]
    assert dataclasses.asdict(second) == dataclasses.asdict(first)
    assert first.advice == (ADVICE,)
    assert [second.spills(name) for name in ("k0", "k1")] == [SPILLS if n in spilled else None for n in ("k0", "k1")]


def test_another_assembler_is_asked_again(asked, tmp_path, monkeypatch):
    assembler.ask_ptxas("0 0")
    monkeypatch.setattr(assembler, "_answers", {})
    (tmp_path / "ptxas").write_text("another")
    assembler.ask_ptxas("0 0")
    assert asked == ["0 0", "0 0"]


@pytest.mark.parametrize(("ptx", "names"), [("refused", []), ("dark 4 4", ["k0"])])
def test_what_may_be_known_later_is_asked_again_by_other_processes(asked, ptx, names, monkeypatch):
    found = [assembler.ask_ptxas(ptx) for _ in range(2)]
    assert asked == [ptx, *names]
    assert (found == [None, None]) == (ptx == "refused")
    assert not names or found[0].spills("k0") is None
    monkeypatch.setattr(assembler, "_answers", {})
    assembler.ask_ptxas(ptx)
    assert asked == 2 * [ptx, *names]


def test_without_the_cache_nothing_is_kept(asked, monkeypatch, tmp_path):
    monkeypatch.setenv("CUTEPY_CACHE", "off")
    assert assembler.ask_ptxas("4 4").spills("k0") == SPILLS
    assert not (tmp_path / "cache").exists()
