"""Instructions of sm_100 and later are taken and refused, target by target, as ptxas 13.0 does."""

import pytest

from cutepy.sim.ptx.parser import parse_module
from cutepy.sim.ptx.tokens import PtxSyntaxError
from tests.messages import refuses
from tests.sim.ptx.sm100_statements import TARGETS, module, recorded


def takes(statement, target):
    try:
        parse_module(module(statement, target))
    except PtxSyntaxError as error:
        assert error.line == 6
        return False
    return True


@pytest.mark.parametrize("target", TARGETS)
def test_each_statement_is_taken_for_the_targets_for_which_ptxas_takes_it(target):
    wrong = [line for targets, line in recorded() if takes(line, target) != (target in targets)]
    assert wrong == []


@pytest.mark.parametrize(
    "statement",
    [
        "tensormap.replace.tile.elemtype.global.b1024.b32 [%d0], 13;",
        "tensormap.replace.tile.elemtype.global.b1024.b32 [%d0], 15;",
        "tensormap.replace.tile.swizzle_mode.global.b1024.b32 [%d0], 4;",
        "st.async.release.gpu.global.b32 [%d0], %r1;",
        "st.async.mmio.release.sys.global.b64 [%d0], %d1;",
        "st.async.release.sys.b32 [%d0], %r1;",
        "red.async.release.gpu.global.add.u32 [%d0], %r1;",
        "red.async.relaxed.sys.add.s64 [%d0], %d1;",
    ],
)
def test_what_ptxas_takes_and_no_document_settles_is_refused_by_name(statement):
    with refuses(PtxSyntaxError):
        parse_module(module(statement, "sm_103a"))
