"""ptxas: where it is looked for, what it says, and what happens without it."""

import re
import shutil
import stat

import pytest

from cutepy.anatomy import explain
from cutepy.binaries import ptxas
from cutepy.binaries.ptxas import Advice, AssemblyError, assemble, find_ptxas, read_advice
from tests.anatomy.kernels import RING, line_of
from tests.messages import pins, refuses

SAID = """ptxas info    : (C7517) warpgroup.wait is injected in around line 12 by compiler to allow use of registers defined by GMMA in function 'k'
ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to insufficient register resources for the wgmma pipeline in the function 'k'
ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to insufficient register resources for the wgmma pipeline in the function 'k'
ptxas warning : (C7508) Potential Performance Loss: 'setmaxnreg' ignored; unable to determine register count at entry.
ptxas info    : Used 42 registers, used 2 barriers
"""  # noqa: E501
VERSION = 'if [ "$1" = --version ]; then echo V9.9.9; exit 0; fi\n'
needs_ptxas = pytest.mark.skipif(shutil.which("ptxas") is None, reason="needs ptxas on PATH")


@pytest.fixture
def alone(monkeypatch):
    """A machine without ptxas."""
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(ptxas, "_PACKAGES", ())
    monkeypatch.delenv("CUDA_HOME", raising=False)


def tool(folder, script):
    file = folder / "ptxas"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return file


def test_advice_has_code_function_and_line():
    found = read_advice(SAID)
    assert [(advice.code, advice.function, advice.line) for advice in found] == [
        ("C7517", "k", 12),
        ("C7510", "k", None),
        ("C7508", None, None),
    ]
    assert found[2] == Advice("C7508", SAID.splitlines()[3].partition("(C7508) ")[2], None, None)


def test_without_ptxas_it_is_said_how_to_get_it(alone):
    with refuses(AssemblyError):
        find_ptxas()
    explained = explain(RING)
    (kernel,) = explained.kernels
    assert (kernel.resources, kernel.advisories) == (None, ())
    pins(kernel.unassembled)
    assert "Advisories of ptxas: not known" in explained.text()


def test_a_toolkit_is_found(alone, tmp_path):
    (tmp_path / "bin").mkdir()
    file = tool(tmp_path / "bin", "exit 1")
    assert find_ptxas(tmp_path) == [file]


def test_what_ptxas_refuses_is_told(alone, tmp_path, monkeypatch):
    tool(
        tmp_path,
        VERSION + 'echo "$3, line 9; fatal   : Unsupported .version" >&2; exit 255',
    )
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    with refuses(AssemblyError):
        assemble(RING)
    assert "Unsupported .version" in explain(RING).text(None)


def test_one_that_is_new_enough_is_taken(alone, tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    old, new = (
        tool(tmp_path, "exit 3"),
        tool(tmp_path / "bin", VERSION + ': > "$5"'),
    )
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert find_ptxas(tmp_path) == [old, new]
    monkeypatch.setattr(ptxas, "read_resources", lambda _: ())
    assert assemble(RING, cuda_home=tmp_path).version == "9.9.9"


def test_advisories_are_at_the_lines_of_python(alone, tmp_path, monkeypatch):
    near = line_of(RING, "mbarrier.try_wait")
    said = (
        "ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored; unable to determine it.\n"
        "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to x"
        " in the function 'ring'\n"
        "ptxas info    : (C7514) Potential Performance Loss: wgmma.mma_async in the function 'another'\n"
        f"ptxas info    : (C7519) warpgroup.arrive is injected in around line {near} by compiler in function 'ring'\n"
    )
    (tmp_path / "said").write_text(said)
    tool(tmp_path, f'if [ "$1" = --version ]; then exit 0; fi; cat {tmp_path}/said >&2; : > "$5"')
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setattr(ptxas, "read_resources", lambda _: ())
    (kernel,) = explain(RING).kernels
    assert {advisory.code: [site.lines for site in advisory.sites] for advisory in kernel.advisories} == {
        "C7508": [("/somewhere/ring.py:13",)],
        "C7510": [("/somewhere/ring.py:23",)],
        "C7519": [("/somewhere/ring.py:22",)],
    }
    pins(kernel.advisories[1].text)


@needs_ptxas
def test_a_real_one_assembles_and_advises():
    free = RING.replace(".reqntid 256, 1, 1", "")
    (kernel,) = explain(free).kernels
    assert kernel.resources.registers > 0
    assert re.fullmatch(r"ptxas \d+\.\d+\.\d+", kernel.resources.assembler)
    (advisory,) = [advisory for advisory in kernel.advisories if advisory.code == "C7508"]
    assert advisory.sites[0].lines == ("/somewhere/ring.py:13",)


TWO = (
    ".version 8.0\n.target sm_90a\n.address_size 64\n"
    ".visible .entry giving()\n{\nsetmaxnreg.dec.sync.aligned.u32 24;\nret;\n}\n"
    ".visible .entry plain()\n{\nbar.sync 0;\nret;\n}\n"
)


@pytest.mark.parametrize(
    ("said", "by_kernel"),
    [
        ("'setmaxnreg' ignored; unable to determine it.", {"giving": [(6,)], "plain": None}),
        ("'setmaxnreg' ignored in the function 'plain'", {"giving": None, "plain": []}),
        ("wgmma.mma_async instructions are serialized due to x", {"giving": None, "plain": None}),
        ("registers are many", {"giving": None, "plain": None}),
        ("something is injected in around line 11 by compiler", {"giving": None, "plain": [(11,)]}),
        ("something is injected in around line 6 by compiler", {"giving": [(6,)], "plain": None}),
    ],
)
def test_advice_without_a_function_is_of_kernels_that_it_fits(alone, tmp_path, monkeypatch, said, by_kernel):
    """In a module of one kernel it is of that one, whatever it has."""
    (tmp_path / "said").write_text(f"ptxas info    : (C7508) Potential Performance Loss: {said}\n")
    tool(tmp_path, f'if [ "$1" = --version ]; then exit 0; fi; cat {tmp_path}/said >&2; : > "$5"')
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setattr(ptxas, "read_resources", lambda _: ())
    found = {
        kernel.name: [site.ptx_lines for advisory in kernel.advisories for site in advisory.sites]
        if kernel.advisories
        else None
        for kernel in explain(TWO).kernels
    }
    assert found == by_kernel
    first, second = TWO.index(".visible .entry giving"), TWO.index(".visible .entry plain")
    for alone_text in (TWO[:second], TWO[:first] + TWO[second:]):
        (kernel,) = explain(alone_text).kernels
        names_another = "function" in said and kernel.name != "plain"
        assert len(kernel.advisories) == (not names_another)
