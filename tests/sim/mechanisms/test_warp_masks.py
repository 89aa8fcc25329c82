"""Member masks of the operations that exchange values within a warp."""

import pytest

from cutepy.sim import SimulationError
from tests.messages import refuses
from tests.sim.opcode_runner import launch

_COLLECTIVES = {
    "shfl": "shfl.sync.idx.b32 %r2, %r1, 0, 31, {mask};",
    "shfl by a register": "mov.u32 %r3, {mask}; shfl.sync.idx.b32 %r2|%p3, %r1, %r1, 31, %r3;",
    "vote": "vote.sync.any.pred %p3, %p1, {mask};",
    "ballot": "vote.sync.ballot.b32 %r2, %p1, {mask};",
    "match": "match.any.sync.b32 %r2, %r1, {mask};",
    "redux": "redux.sync.add.u32 %r2, %r1, {mask};",
    "bar.warp": "bar.warp.sync {mask};",
    "elect": "elect.sync %r2|%p3, {mask};",
    "a mask of each lane": "add.u32 %r3, %r1, {mask}; sub.u32 %r3, %r3, %r1; shfl.sync.idx.b32 %r2, %r1, 0, 31, %r3;",
}


@pytest.mark.parametrize("collective", _COLLECTIVES.values(), ids=_COLLECTIVES)
@pytest.mark.parametrize("mask", [0xFFFFFFFE, 0, 0x0000FFFF, 0x7FFFFFFF])
def test_lanes_name_themselves_in_their_masks(collective, mask):
    body = "mov.u32 %r1, %laneid; setp.lt.u32 %p1, %r1, 4;"
    with refuses(SimulationError):
        launch(body + collective.format(mask=mask))
    keep = f"shr.u32 %r4, {mask}, %r1; and.b32 %r4, %r4, 1; setp.eq.u32 %p2, %r4, 0; @%p2 exit;"
    if mask:
        launch(body + keep + collective.format(mask=mask))
