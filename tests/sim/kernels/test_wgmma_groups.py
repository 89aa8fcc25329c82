"""Groups of wgmmas: what touches the registers of MMAs that are not committed, empty groups, the order of completion.

References
----------
PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions": "wgmma.commit_group",
"wgmma.wait_group"; "cp.async.bulk.commit_group": "There is no memory ordering guarantee provided between any two
cp.async.bulk operations". ptxas 13.0 says C7517, "warpgroup.wait is injected ... to allow use of registers defined by
GMMA", where other instructions use accumulators between an MMA and its commit.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from cutepy.sim import AsyncOperation, CompletionPolicy, Observer

from .launching import launch

# All of shared memory holds ones in f16, so each m64n8k16 adds 16 to each element, whatever the layout.
ONES = """
mov.u32 %r40, %tid.x; shl.b32 %r40, %r40, 4; mov.u32 %r41, smem; add.u32 %r41, %r41, %r40; mov.u32 %r42, 0x3C003C00;
st.shared.v4.u32 [%r41], {%r42, %r42, %r42, %r42};
st.shared.v4.u32 [%r41+2048], {%r42, %r42, %r42, %r42};
fence.proxy.async.shared::cta; bar.sync 0;
mov.b64 %rd10, 0x1000080000; mov.u32 %r43, 0; setp.ne.u32 %p1, %r43, 0; setp.eq.u32 %p2, %r43, 0;
wgmma.fence.sync.aligned;
"""
COMMIT = "wgmma.commit_group.sync.aligned;"
WAIT = "wgmma.wait_group.sync.aligned {};"
DONE = f"{COMMIT}\n{WAIT.format(0)}"


def mma(accumulates: bool, first: int = 0) -> str:
    """Return an MMA in f16, on %r<first> and the next; %p1 does not hold, %p2 does."""
    kinds = "wgmma.mma_async.sync.aligned.m64n8k16.f16.f16.f16"
    registers, predicate = f"{{%r{first}, %r{first + 1}}}", "%p2" if accumulates else "%p1"
    return f"{kinds} {registers}, %rd10, %rd10, {predicate}, 1, 1, 0, 0;"


def mma_f32(accumulates: bool) -> str:
    """Return an MMA in f32, on %f0 to %f3."""
    kinds = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"
    return f"{kinds} {{%f0, %f1, %f2, %f3}}, %rd10, %rd10, {'%p2' if accumulates else '%p1'}, 1, 1, 0, 0;"


class Late(CompletionPolicy):
    """Complete nothing before somebody waits for it; then the youngest first."""

    def completes_at_issue(self, operation: AsyncOperation) -> bool:
        return False

    def choose(self, pending: Sequence[AsyncOperation]) -> int:
        return len(pending) - 1


class EveryOther(CompletionPolicy):
    """Complete every second operation as it is issued."""

    def __init__(self) -> None:
        self._count = 0

    def completes_at_issue(self, operation: AsyncOperation) -> bool:
        self._count += 1
        return self._count % 2 == 0


class Completions(Observer):
    """Number operations by their issue, and list them as they complete."""

    def __init__(self) -> None:
        self.issued: list[AsyncOperation] = []
        self.completed: list[tuple[str, int]] = []

    def on_issue(self, operation: AsyncOperation) -> None:
        self.issued.append(operation)

    def on_complete(self, operation: AsyncOperation) -> None:
        self.completed.append((operation.kind, self.issued.index(operation)))


def run(
    body: str,
    policy: CompletionPolicy | None = None,
    observers: Sequence[Observer] = (),
    result: str = "%r20",
    smem: int = 8192,
    start: str = "mov.u32 %r0, 0; mov.u32 %r1, 0;",
) -> np.ndarray:
    """Run the body with 128 threads, and return the word that each leaves in `result`."""
    out = np.zeros(128 + 64, np.uint32)
    store = f"mov.u32 %r40, %tid.x; mad.wide.u32 %rd11, %r40, 4, %rd0; st.global.b32 [%rd11], {result};"
    launch(
        "\n".join([ONES, start, body, store]),
        [out],
        block=(128, 1, 1),
        smem=smem,
        policy=policy,
        observers=observers,
    )
    return out[:128]


def halves(value: float) -> int:
    return int(np.array([value, value], np.float16).view(np.uint32)[0])


@pytest.fixture(params=[CompletionPolicy, Late, EveryOther], ids=["at once", "late", "every other"])
def policy(request: pytest.FixtureRequest) -> CompletionPolicy:
    return request.param()


def test_what_reads_accumulators_before_their_commit_reads_them_complete(policy):
    assert (run(f"{mma(False)} mov.u32 %r20, %r0; {DONE}", policy) == halves(16)).all()


def test_accumulators_in_f32_too(policy):
    body = f"{mma_f32(False)} {mma_f32(True)} mov.b32 %r20, %f3; {DONE}"
    found = run(body, policy, start="mov.f32 %f3, 0f00000000;")
    assert (found.view(np.float32) == 32).all()


def test_what_writes_accumulators_before_their_commit_is_not_overwritten(policy):
    body = f"{mma(False)} mov.u32 %r0, {halves(3)}; {DONE} mov.u32 %r20, %r0;"
    assert (run(body, policy) == halves(3)).all()


def test_an_mma_goes_on_from_what_was_written_between(policy):
    body = f"{mma(False)} mov.u32 %r0, {halves(3)}; {mma(True)} {DONE} mov.u32 %r20, %r0;"
    assert (run(body, policy) == halves(19)).all()


def test_accumulators_unpacked_and_packed_again_before_the_commit(policy):
    """As the DSL writes its f16 GEMM."""
    body = f"""{mma(False)} mov.b32 {{%h0, %h1}}, %r0; mov.b32 {{%h2, %h3}}, %r1; {COMMIT}
    mov.b32 %r4, {{%h0, %h1}}; mov.b32 %r5, {{%h2, %h3}};
    wgmma.fence.sync.aligned; {mma(True, first=4)} mov.b32 {{%h0, %h1}}, %r4; {COMMIT}
    {WAIT.format(0)} mov.b32 %r20, {{%h0, %h1}};"""
    assert (run(body, policy) == halves(32)).all()


def test_an_mma_that_reads_them_as_its_operand(policy):
    """A of the second MMA are accumulators of the first: 16, times ones, sixteen of them."""
    second = "wgmma.mma_async.sync.aligned.m64n8k16.f16.f16.f16 {%r4, %r5}, {%r0, %r1, %r0, %r1}, %rd10, %p1, 1, 1, 0;"
    body = f"{mma(False)} {second} {DONE} mov.u32 %r20, %r4;"
    assert (run(body, policy) == halves(256)).all()


def test_what_reads_accumulators_after_their_commit_and_without_a_wait_may_read_them_incomplete():
    body = f"{mma(False)} {COMMIT} mov.u32 %r20, %r0; {WAIT.format(0)}"
    assert (run(body) == halves(16)).all()
    assert (run(body, Late(), start=f"mov.u32 %r0, {halves(5)};") == halves(5)).all()


@pytest.mark.parametrize("between", ["", f"mov.u32 %r6, %r4; {COMMIT}", COMMIT])
def test_groups_without_mmas_count(between, policy):
    """Of an empty group, and of one whose MMAs are complete already, the older ones are waited for."""
    if "mov" in between:
        between = f"{mma(False, first=4)} {between}"
    commits = between or COMMIT
    body = f"{mma(False)} {COMMIT} {commits} {WAIT.format(1)} mov.u32 %r20, %r0; {WAIT.format(0)}"
    assert (run(body, policy) == halves(16)).all()


# A copy that the lanes wait for, so that the policy chooses among all that is pending.
COPY = """
setp.ne.u32 %p3, %r40, 0; mov.u32 %r44, smem;
@!%p3 mbarrier.init.shared.b64 [%r44+4096], 1;
bar.sync 0;
@!%p3 mbarrier.arrive.expect_tx.shared.b64 _, [%r44+4096], 16;
@!%p3 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r44+4112], [%rd0+512], 16, [%r44+4096];
"""
COPY_WAIT = "L: mbarrier.try_wait.parity.shared.b64 %p4, [%r44+4096], 0;\n@!%p4 bra L;"


def test_groups_of_a_warpgroup_complete_in_order(policy):
    """Whichever the policy chooses: the second goes on from the first one's sums."""
    seen = Completions()
    groups = "\n".join(f"{mma(n > 0)} {COMMIT}" for n in range(3))
    body = f"mov.u32 %r40, %tid.x; {COPY} {groups} {COPY_WAIT} {WAIT.format(0)} mov.u32 %r20, %r0;"
    assert (run(body, policy, [seen]) == halves(48)).all()
    order = [number for kind, number in seen.completed if kind == "wgmma"]
    assert len(order) == 3
    assert order == sorted(order)


def test_bulk_groups_of_a_thread_may_complete_in_any_order():
    seen = Completions()
    store = "@!%p3 cp.async.bulk.global.shared::cta.bulk_group [%rd0+512], [%r44], 16;"
    groups = f"{store}\n@!%p3 cp.async.bulk.commit_group;\n" * 3
    body = f"mov.u32 %r40, %tid.x; {COPY} {groups} {COPY_WAIT} cp.async.bulk.wait_group 0;"
    run(body, Late(), [seen])
    assert [number for kind, number in seen.completed if kind == "bulk_store"] == [3, 2, 1]


@pytest.mark.parametrize("mask", [1, 32])
def test_lanes_that_part_have_the_accumulators(policy, mask):
    part = f"and.b32 %r5, %r40, {mask}; setp.eq.u32 %p5, %r5, 0; @%p5 bra OVER;"
    body = f"{mma(False)} {DONE} mov.u32 %r40, %tid.x; {part} mov.u32 %r20, %r0; bra ON; OVER: mov.u32 %r20, %r1; ON:"
    assert (run(body, policy) == halves(16)).all()


@pytest.mark.parametrize("before", [DONE, COMMIT], ids=["commit and wait", "wait"])
def test_a_wait_in_a_branch_is_for_the_mmas_before_it(policy, before):
    """Half of the CTAs wait and overwrite the operands; the MMAs of all have read them by then or keep them."""
    inside, outside = (before, "") if before == DONE else (WAIT.format(0), COMMIT)
    out = np.zeros(2 * 128, np.uint32)
    body = f"""{ONES} mov.u32 %r0, 0; mov.u32 %r1, 0; mov.u32 %r45, %ctaid.x; setp.eq.u32 %p5, %r45, 0;
    {mma(False)} {outside}
    @%p5 bra JOIN;
    {inside}
    mov.u32 %r46, 0; st.shared.v4.u32 [%r41], {{%r46, %r46, %r46, %r46}}; fence.proxy.async.shared::cta; bar.sync 0;
    JOIN: {DONE}
    mov.u32 %r40, %tid.x; mad.lo.u32 %r40, %r45, 128, %r40; mad.wide.u32 %rd11, %r40, 4, %rd0;
    st.global.b32 [%rd11], %r0;"""
    launch(body, [out], block=(128, 1, 1), grid=(2, 1, 1), smem=8192, policy=policy)
    assert (out == halves(16)).all()


@pytest.mark.parametrize("before", [1, 2, 3])
def test_an_mma_that_starts_anew_after_others_in_its_group(before):
    """Those that continue each other may be computed as one, but not what forgets them."""
    body = f"{mma_f32(False)} {mma_f32(True) * before} {mma_f32(False)} {mma_f32(True)} {DONE} mov.b32 %r20, %f3;"
    assert (run(body, start="").view(np.float32) == 32).all()
