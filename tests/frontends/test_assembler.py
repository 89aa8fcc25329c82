"""The assembler is asked once about each module, and its cubins are kept only where they are asked about later."""

from types import SimpleNamespace

import pytest

from cutepy.binaries.ptxas import Assembly, AssemblyError
from cutepy.frontends import assembler


@pytest.fixture
def asked(monkeypatch):
    """Modules that are assembled; their text says how many bytes are stored and loaded again, or that it is refused."""
    found = []

    def assemble(ptx):
        found.append(ptx)
        if ptx == "refused":
            raise AssemblyError(ptx)
        kernels = [map(int, kernel.split()) for kernel in ptx.split(";")]
        resources = tuple(SimpleNamespace(spill_store_bytes=out, spill_load_bytes=back) for out, back in kernels)
        return Assembly("1", resources, (), b"cubin")

    monkeypatch.setattr(assembler, "assemble", assemble)
    monkeypatch.setattr(assembler, "_answers", {})
    return found


@pytest.mark.parametrize(
    ("ptx", "image"), [("0 0", b""), ("8 0", b"cubin"), ("0 8", b"cubin"), ("0 0;4 4", b"cubin"), ("0 0;0 0", b"")]
)
def test_a_cubin_is_kept_where_registers_are_spilled(asked, ptx, image):
    assert [assembler.ask_ptxas(ptx).image for _ in range(2)] == [image, image]
    assert asked == [ptx]


def test_a_module_that_is_refused_has_no_answer(asked):
    assert [assembler.ask_ptxas("refused") for _ in range(2)] == [None, None]
    assert asked == ["refused"]
