"""Control fields of machine code: results that take a variable time are waited for, lines are those of the PTX."""

import pytest

from cutepy.binaries.machine_code import control, read_code
from cutepy.binaries.ptxas import AssemblyError, assemble, find_ptxas
from cutepy.binaries.sass import DisassemblyError, find_nvdisasm
from tests.predict.kernels import COPY

try:
    find_ptxas(), find_nvdisasm()
    MISSING = ""
except (AssemblyError, DisassemblyError) as error:
    MISSING = str(error)


@pytest.mark.parametrize(
    ("high", "fields"),
    [
        (0x000FE20000000800, (1, False, None, None, ())),
        (0x000EA20000008800, (1, False, 2, None, ())),
        (0x004FE2000F8EC03F, (1, False, None, None, (2,))),
        (0x0002A6000802017F, (3, False, 2, 1, ())),
        (0x040FE40000000000, (2, False, None, None, ())),  # with a register kept for the next one
    ],
)
def test_fields_are_decoded(high, fields):
    assert control(high) == fields


@pytest.mark.skipif(bool(MISSING), reason=MISSING or "has tools")
def test_loads_set_scoreboards_that_stores_wait_for():
    code = read_code(assemble(COPY).image, "copy")
    lines = COPY.splitlines()
    loads = [i for i in code if i.verb == "LDG"]
    stores = [i for i in code if i.verb == "STG"]
    assert (len(loads), len(stores)) == (4, 4)
    assert all("ld.global" in lines[i.line - 1] for i in loads)
    assert all("st.global" in lines[i.line - 1] for i in stores)
    assert {i.sets for i in loads} <= {n for i in code for n in i.waits}
    assert all(i.sets is None for i in stores)
    assert all(0 <= i.stall < 16 for i in code)


@pytest.mark.skipif(bool(MISSING), reason=MISSING or "has tools")
def test_a_kernel_that_is_not_there_has_no_code():
    assert read_code(assemble(COPY).image, "other") == ()
