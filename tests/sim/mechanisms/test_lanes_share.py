"""Operations that several lanes execute on one object: of each lane one, whether the address is uniform or is not.

The address, and the amount, are the same in all lanes. They are uniform values here or differ as far as the simulator
knows: what is left, and what is counted, is the same, and is what each lane's operation gives.
"""

import numpy as np
import pytest

from cutepy.sim.errors import BarrierError
from tests.messages import refuses
from tests.sim.kernels.launching import launch

_HEAD = """
.reg .pred %out; .reg .b32 %thread, %zero, %bar, %data, %n, %v, %w; .reg .b64 %wide, %to, %state, %x, %y;
.shared .align 16 .b8 inner[512];
mov.u32 %thread, %tid.x; mov.u32 %zero, 0; mov.b64 %to, %rd0; mov.u32 %bar, inner; add.u32 %data, %bar, 64;
"""
_COUNT_OF_STATE = "mbarrier.arrive.shared.b64 %state, [%bar]; mbarrier.pending_count.b64 %v, %state;"
_INIT = "mbarrier.init.shared.b64 [%bar], {};"
_DONE = """mbarrier.test_wait.parity.shared.b64 %out, [%bar], 0; selp.u32 %v, 1, 0, %out;"""
_COMPLETE = "mbarrier.complete_tx.relaxed.cluster.shared::cta.b64 [%bar], {};"
_READ = "ld.shared.u32 %v, [%data];"

CASES = {
    # Name: what thread 0 does before, what lanes do, what thread 0 does after to have a value in %v, and that value.
    "init": ("", "mbarrier.init.shared.b64 [%bar], %n;", _COUNT_OF_STATE, lambda n: 3),
    "inval": (
        _INIT.format(9),
        "mbarrier.inval.shared.b64 [%bar];",
        f"{_INIT.format(4)} {_COUNT_OF_STATE}",
        lambda n: 4,
    ),
    "expect_tx": (
        _INIT.format(1),
        "mbarrier.expect_tx.relaxed.cta.shared.b64 [%bar], %n;",
        f"mbarrier.arrive.shared.b64 _, [%bar]; {_DONE} mov.u32 %w, %v; mul.lo.u32 %n, %n, LANES; "
        f"{_COMPLETE.format('%n')} {_DONE} sub.u32 %v, %v, %w;",
        lambda n: 1,
    ),
    "arrive": (
        _INIT.format(200),
        "mbarrier.arrive.shared.b64 _, [%bar], %n;",
        _COUNT_OF_STATE,
        lambda n: 200 - 3 * n,
    ),
    "arrive noComplete": (
        _INIT.format(200),
        "mbarrier.arrive.noComplete.shared.b64 %state, [%bar], %n;",
        _COUNT_OF_STATE,
        lambda n: 200 - 3 * n,
    ),
    "arrive_drop": (
        _INIT.format(200),
        "mbarrier.arrive_drop.shared.b64 _, [%bar], %n;",
        _COUNT_OF_STATE,
        lambda n: 200 - 3 * n,
    ),
    "arrive_drop, the next phase": (
        _INIT.format(200),
        "mbarrier.arrive_drop.shared.b64 _, [%bar], %n;",
        "mul.lo.u32 %n, %n, LANES; sub.u32 %n, 200, %n; mbarrier.arrive.shared.b64 _, [%bar], %n;" + _COUNT_OF_STATE,
        lambda n: 200 - 3 * n,
    ),
    "arrive.expect_tx": (
        _INIT.format(40),
        "mbarrier.arrive.expect_tx.shared.b64 _, [%bar], %n;",
        f"mul.lo.u32 %n, %n, LANES; {_COMPLETE.format('%n')} {_COUNT_OF_STATE}",
        lambda n: 40 - n,
    ),
    "complete_tx": (
        f"{_INIT.format(1)} mbarrier.expect_tx.relaxed.cta.shared.b64 [%bar], 96;",
        _COMPLETE.format("%n"),
        f"mul.lo.u32 %n, %n, LANES; sub.u32 %n, 96, %n; {_COMPLETE.format('%n')}"
        f"mbarrier.arrive.shared.b64 _, [%bar]; {_DONE}",
        lambda n: 1,
    ),
    "cp.async.mbarrier.arrive": (
        _INIT.format(7),
        "cp.async.mbarrier.arrive.shared.b64 [%bar];",
        _COUNT_OF_STATE,
        lambda n: 7,
    ),
    "cp.async.mbarrier.arrive.noinc": (
        _INIT.format(40),
        "cp.async.mbarrier.arrive.noinc.shared.b64 [%bar];",
        _COUNT_OF_STATE,
        lambda n: 40 - n,
    ),
    "st.shared": ("", "st.shared.u32 [%data], %n;", _READ, lambda n: 3),
    "red.shared": ("st.shared.u32 [%data], 100;", "red.shared.add.u32 [%data], %n;", _READ, lambda n: 100 + 3 * n),
    "red.shared.xor": (
        "st.shared.u32 [%data], 8;",
        "red.shared.xor.b32 [%data], %n;",
        _READ,
        lambda n: 8 + 3 * (n % 2),
    ),
    "atom.shared": (
        "st.shared.u32 [%data], 100;",
        "atom.shared.add.u32 %v, [%data], %n;",
        _READ,
        lambda n: 100 + 3 * n,
    ),
    "atom.shared.inc": (
        "st.shared.u32 [%data], 0;",
        "atom.shared.inc.u32 %v, [%data], %n;",
        _READ,
        lambda n: n % 4,
    ),
    "st.global": ("", "st.global.u32 [%to+64], %n;", "ld.global.u32 %v, [%to+64];", lambda n: 3),
    "red.global": ("", "red.global.add.u32 [%to+64], %n;", "ld.global.u32 %v, [%to+64];", lambda n: 1 + 3 * n),
    "red.global.v2": (
        "st.global.v2.u32 [%to+64], {0, 0};",
        "mov.b32 %f0, 0f3f800000; red.global.add.v2.f32 [%to+64], {%f0, %f0};",
        "ld.global.f32 %f1, [%to+68]; cvt.rni.u32.f32 %v, %f1;",
        lambda n: n,
    ),
    "atom.global.b128": (
        "st.global.v2.u64 [%to+64], {0, 0};",
        ".reg .b128 %e, %q; cvt.u64.u32 %x, %n; mov.b128 %e, {%x, %x}; atom.global.exch.b128 %q, [%to+64], %e;",
        "ld.global.u32 %v, [%to+72];",
        lambda n: 3,
    ),
    "cp.async": (
        "st.global.u32 [%to+64], 77;",
        "cp.async.ca.shared.global [%data], [%to+64], 4; cp.async.wait_all;",
        _READ,
        lambda n: 77,
    ),
    "cp.async.bulk to shared memory": (
        f"{_INIT.format(1)} mbarrier.arrive.expect_tx.shared.b64 _, [%bar], ALLBYTES; st.global.u32 [%to+64], 77;",
        "fence.proxy.async; "
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%data], [%to+64], 16, [%bar];",
        f"W: {_DONE} @!%out bra W; {_READ}",
        lambda n: 77,
    ),
    "cp.async.bulk to global memory": (
        "st.shared.v4.u32 [%data], {5, 5, 5, 5};",
        "fence.proxy.async; cp.async.bulk.global.shared::cta.bulk_group [%to+64], [%data], 16; "
        "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;",
        "ld.global.u32 %v, [%to+76];",
        lambda n: 5,
    ),
    "cp.reduce.async.bulk": (
        "st.shared.v4.u32 [%data], {5, 5, 5, 5}; st.global.u32 [%to+64], 100;",
        "fence.proxy.async; cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%to+64], [%data], 16; "
        "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;",
        "ld.global.u32 %v, [%to+64];",
        lambda n: 100 + 5 * n,
    ),
    "cp.async.bulk to a CTA": (
        f"{_INIT.format(1)} mbarrier.arrive.expect_tx.shared.b64 _, [%bar], ALLBYTES; st.shared.u32 [%data+64], 78;",
        "fence.proxy.async; mapa.shared::cluster.u32 %v, %data, 0; mapa.shared::cluster.u32 %w, %bar, 0; "
        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%v], [%data+64], 16, [%w];",
        f"W: {_DONE} @!%out bra W; {_READ}",
        lambda n: 78,
    ),
    "st.async": (
        f"{_INIT.format(1)} mbarrier.arrive.expect_tx.shared.b64 _, [%bar], FOURBYTES;",
        "mapa.shared::cluster.u32 %v, %data, 0; mapa.shared::cluster.u32 %w, %bar, 0; "
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%v], %n, [%w];",
        f"W: {_DONE} @!%out bra W; {_READ}",
        lambda n: 3,
    ),
    "red.async": (
        f"{_INIT.format(1)} mbarrier.arrive.expect_tx.shared.b64 _, [%bar], FOURBYTES; st.shared.u32 [%data], 10;",
        "mapa.shared::cluster.u32 %v, %data, 0; mapa.shared::cluster.u32 %w, %bar, 0; "
        "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%v], %n, [%w];",
        f"W: {_DONE} @!%out bra W; {_READ}",
        lambda n: 10 + 3 * n,
    ),
}


def _run(name: str, lanes: int, address: bool, amount: bool) -> tuple[int, object]:
    before, shared, after, _ = CASES[name]
    text = _HEAD + "setp.ne.u32 %p0, %thread, 0; @%p0 bra A;\n" + before
    text += f"\nA: bar.warp.sync -1; setp.ge.u32 %p1, %thread, {lanes}; mov.u32 %n, 3;\n"
    if address:  # by more than the instructions that follow can tell
        text += "shr.u32 %zero, %thread, 20; add.u32 %bar, %bar, %zero; add.u32 %data, %data, %zero;\n"
        text += "cvt.u64.u32 %wide, %zero; add.u64 %to, %to, %wide;\n"
    if amount:
        text += "shr.u32 %w, %thread, 20; add.u32 %n, %n, %w;\n"
    text += f"@%p1 bra B;\n{shared}\nB: bar.warp.sync -1; @%p0 bra E;\n{after}\nst.global.u32 [%to], %v;\nE:\n"
    for word, value in (("LANES", lanes), ("ALLBYTES", 16 * lanes), ("FOURBYTES", 4 * lanes)):
        text = text.replace(word, str(value))
    found = np.ones(64, np.uint32)
    run = launch(text, [found], processes=1)
    return int(found[0]), run.launches[0].stats


@pytest.mark.parametrize("name", CASES)
def test_each_lane_does_it_whether_or_not_the_address_is_uniform(name):
    for lanes in (4, 32):
        expected = CASES[name][3](lanes)
        for address, amount in ((False, False), (True, lanes == 4), (False, True))[: 3 if lanes == 4 else 2]:
            assert _run(name, lanes, address, amount)[0] == expected, (lanes, address, amount)


def test_lanes_that_disagree_on_a_count_are_told():
    body = _HEAD + "add.u32 %n, %thread, 1; mbarrier.init.shared.b64 [%bar], %n;"
    with refuses(BarrierError) as found:
        launch(body, [np.zeros(1, np.uint32)])
    assert found.value.instruction.opcode == "mbarrier.init.shared.b64"


def test_each_lane_may_have_an_mbarrier_and_a_count_of_its_own():
    body = _HEAD + (
        "shr.u32 %v, %thread, 1; mad.lo.u32 %bar, %v, 8, %bar; add.u32 %n, %v, 5; mbarrier.init.shared.b64 [%bar], %n;"
        "bar.warp.sync -1; and.b32 %w, %thread, 1; setp.ne.u32 %p0, %w, 0; @%p0 bra E;"
        f"{_COUNT_OF_STATE} mad.wide.u32 %to, %thread, 2, %to; st.global.u32 [%to], %v; E:"
    )
    found = np.zeros(16, np.uint32)
    launch(body, [found])
    assert found.tolist() == list(range(5, 21))
