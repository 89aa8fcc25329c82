"""Small programs of barriers (`model.py`) as PTX, and what the simulator and the sanitizer say of them."""

import numpy as np

from cutepy.layouts.sm100 import InstrDescriptor, SmemDescriptor
from cutepy.sim import Run
from cutepy.sim.errors import SimulationError
from cutepy.sim.machine.policies import policy_named
from tests.sim.opcode_runner import launch

MBARRIERS, WORDS, PLACES, PLACE = 0, 256, 512, 4096

FENCE = "fence.proxy.async.shared::cta;"
"""Comes after each read of what copies write: the model has one proxy, and so have programs with this."""


def examined(text, *counts, policy=None, **extents):
    """Run PTX; returns its certificate (None if it did not end), the hazards, and the error."""
    simulation = Run((), policy, sanitize=True)
    error = None
    try:
        memory = np.zeros(PLACE, np.uint32)
        launch(text, memory, *counts, smem_bytes=PLACES + PLACE * 8, run=simulation, assembles=False, **extents)
    except SimulationError as found:
        error = found
    certificates = simulation.certificates
    return certificates[0] if certificates else None, simulation.hazards, error


def run(threads, counts, policy=None):
    """Run a program; returns the certificate (None if it did not end), the hazards, and the error."""
    return examined(ptx(threads, counts), policy=policy, block=32 * len(threads))


def policy_of(name):
    return None if name is None else policy_named(name)


def ptx(threads, counts):
    """Write a program."""
    meets = any(op[0] in ("sync", "bar_arrive") for ops in threads for op in ops)
    lines = [
        "mov.u32 %r1, smem; mov.u32 %r2, %tid.x; ld.param.u64 %rd1, [p0];",
        "and.b32 %r3, %r2, 31; setp.eq.u32 %p1, %r3, 0; shr.u32 %r4, %r2, 5; setp.eq.u32 %p2, %r2, 0;",
        "@!%p2 bra READY;",
        *(f"mbarrier.init.shared.b64 [%r1+{8 * b}], {count};" for b, count in enumerate(counts)),
        *(f"st.shared.u32 [%r1+{place}], %r2;" for place in _places(threads)),
        "fence.mbarrier_init.release.cluster; fence.proxy.async;",
        "READY: bar.sync 0;",
    ]
    if not meets:
        lines.append("@!%p1 bra END;")
    lines += [f"setp.eq.u32 %p3, %r4, {n}; @%p3 bra THREAD{n};" for n in range(len(threads))]
    for n, ops in enumerate(threads):
        lines.append(f"THREAD{n}:")
        for at, op in enumerate(ops):
            lines += _operation(op, f"{n}_{at}", meets, n)
        lines.append("bra END;")
    lines.append("END:")
    return "\n".join(lines)


def run_tensor(threads, counts, policy=None):
    """Run a program of the tensor core, each thread a warp; returns the same as `run`."""
    return examined(tensor_ptx(threads, counts), policy=policy, block=128, target="sm_100a")


COLUMNS = 16
"""Of an accumulator of 128 x 16."""
_B = PLACES + 7 * PLACE
"""The B of all MMAs; the A is what copies write, all of a place."""


def tensor_ptx(threads, counts):
    """Write a program with tensor memory: two accumulators, which begin as zeros."""
    word, a, b = int(InstrDescriptor("f16", 128, 16)), SmemDescriptor(0, 16, 256, layout_type=6), "%rd12"
    zeros = ", ".join(["%r5"] * 2 * COLUMNS)
    lines = [
        "mov.u32 %r1, smem; mov.u32 %r2, %tid.x; ld.param.u64 %rd1, [p0]; mov.u32 %r5, 0;",
        "and.b32 %r3, %r2, 31; setp.eq.u32 %p1, %r3, 0; shr.u32 %r4, %r2, 5; setp.eq.u32 %p2, %r2, 0;",
        f"shr.u32 %r6, %r1, 4; cvt.u64.u32 %rd10, %r6; add.u64 %rd11, %rd10, {int(a)};",
        f"add.u64 {b}, %rd11, {_B // 16}; setp.ne.u32 %p4, %r4, 0; setp.ne.u32 %p6, %r2, %r2;",
        f"@!%p2 bra READY; mov.u64 %rd13, {_B + 512 - WORDS}; st.bulk.weak.shared::cta [%r1+{WORDS}], %rd13, 0;",
        *(f"mbarrier.init.shared.b64 [%r1+{8 * n}], {count};" for n, count in enumerate(counts)),
        "fence.mbarrier_init.release.cluster; fence.proxy.async;",
        "READY: @%p4 bra ALLOCATED;",
        f"tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r1+{WORDS - 16}], {2 * COLUMNS};",
        f"ALLOCATED: bar.sync 0; ld.shared.u32 %r7, [%r1+{WORDS - 16}];",
        f"tcgen05.st.sync.aligned.32x32b.x{2 * COLUMNS}.b32 [%r7], {{{zeros}}}; tcgen05.wait::st.sync.aligned;",
        "bar.sync 0;",
    ]
    lines += [f"setp.eq.u32 %p3, %r4, {n}; @%p3 bra THREAD{n};" for n in range(len(threads))]
    lines.append("bra END;")
    for n, ops in enumerate(threads):
        lines.append(f"THREAD{n}:")
        for at, op in enumerate(ops):
            lines += _of_tensor_core(op, f"{n}_{at}", n, word)
        lines.append("bra END;")
    free = f"tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r7, {2 * COLUMNS};"
    return "\n".join([*lines, "END: bar.warp.sync 0xffffffff; bar.sync 0; @%p4 bra FREED;", free, "FREED:"])


def _of_tensor_core(op, name, thread, word):
    kind = op[0]
    by_warp = {
        "tensor_load": "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r8}, [%r9];",
        "tensor_store": "tcgen05.st.sync.aligned.32x32b.x1.b32 [%r9], {%r5};",
        "wait_loads": "tcgen05.wait::ld.sync.aligned;",
        "wait_stores": "tcgen05.wait::st.sync.aligned;",
    }
    if kind in by_warp:
        column = [f"add.u32 %r9, %r7, {COLUMNS * op[1]};"] if len(op) > 1 else []
        return ["bar.warp.sync 0xffffffff;", *column, by_warp[kind]]
    mma = "tcgen05.mma.cta_group::1.kind::f16 [%r9], {}, %rd12, {}, %p6;"
    if kind == "mma":
        at = f"add.u64 %rd14, %rd11, {_place(op[2]) // 16}; add.u32 %r9, %r7, {COLUMNS * op[1]};"
        lines = [at, mma.format("%rd14", word)]
    elif kind == "mma_tensor":
        at = f"add.u32 %r8, %r7, {COLUMNS * op[2]}; add.u32 %r9, %r7, {COLUMNS * op[1]};"
        lines = [at, mma.format("[%r8]", word)]
    elif kind == "commit":
        lines = [f"tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64 [%r1+{8 * op[1]}];"]
    else:
        return _operation(op, name, True, thread)
    return [f"@!%p1 bra ON{name};", *lines, f"ON{name}:"]


def _places(threads):
    words = {op[1] for ops in threads for op in ops if op[0] in ("store", "load")}
    copies = {op[3] for ops in threads for op in ops if op[0] == "copy"}
    return sorted(_place(x) for x in words | copies)


def _place(x):
    """Words are numbers, and what copies write letters."""
    return WORDS + 16 * x if isinstance(x, int) else PLACES + PLACE * "abcdefgh".index(x)


def _operation(op, name, meets, thread):
    kind = op[0]
    if kind in ("sync", "bar_arrive"):
        verb = "sync" if kind == "sync" else "arrive"
        return ["bar.warp.sync 0xffffffff;", f"bar.{verb} {op[1] + 1}, {32 * op[2]};"]
    lines = _by_one_lane(op, name, thread)
    return [f"@!%p1 bra ON{name};", *lines, f"ON{name}:"] if meets else lines


def _by_one_lane(op, name, thread):
    kind = op[0]
    if kind in ("store", "load"):
        at = _place(op[1])
        return [f"st.shared.u32 [%r1+{at}], %r2;" if kind == "store" else f"ld.shared.u32 %r9, [%r1+{at}]; {FENCE}"]
    if kind == "wait_if_not":
        wait = _wait(op[2], op[3], name, "try_wait")
        return [f"setp.ne.u32 %p7, {_register(thread, op[1])}, 0; @%p7 bra PAST{name};", *wait, f"PAST{name}:"]
    at = f"[%r1+{8 * op[1]}]"
    if kind == "peek":
        way = "test_wait" if len(op) > 4 else "try_wait"
        return [
            f"mbarrier.{way}.parity.shared.b64 %p6, {at}, {op[2]};",
            f"selp.u32 {_register(thread, op[3])}, 1, 0, %p6;",
        ]
    if kind == "wait":
        return _wait(op[1], op[2], name, "test_wait" if len(op) > 3 else "try_wait")
    if kind == "reinit":
        return [
            f"mbarrier.inval.shared.b64 {at};",
            f"mbarrier.init.shared.b64 {at}, {op[2]};",
            "fence.mbarrier_init.release.cluster;",
        ]
    if kind == "copy":
        to = f"[%r1+{_place(op[3])}]"
        return [f"cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes {to}, [%rd1], {op[2]}, {at};"]
    return {
        "arrive": [f"mbarrier.arrive.shared.b64 _, {', '.join([at, *map(str, op[2:])])};"],
        "drop": [f"mbarrier.arrive_drop.shared.b64 _, {', '.join([at, *map(str, op[2:])])};"],
        "nocomplete": [f"mbarrier.arrive.noComplete.shared.b64 %rd9, {at}, 1;"],
        "expect": [f"mbarrier.expect_tx.relaxed.cta.shared::cta.b64 {at}, {op[-1]};"],
        "complete": [f"mbarrier.complete_tx.relaxed.cta.shared::cta.b64 {at}, {op[-1]};"],
        "arrive_expect": [f"mbarrier.arrive.expect_tx.shared.b64 _, {at}, {op[-1]};"],
        "increment": [f"cp.async.mbarrier.arrive.shared.b64 {at};"],
        "noinc": [f"cp.async.mbarrier.arrive.noinc.shared.b64 {at};"],
    }[kind]


def _register(thread, name):
    return f"%r{20 + 10 * thread + name}"


def _wait(b, parity, name, way):
    at = f"[%r1+{8 * b}]"
    return [f"WAIT{name}: mbarrier.{way}.parity.shared.b64 %p5, {at}, {parity};", f"@!%p5 bra WAIT{name};"]


def run_cluster(threads, counts, policy=None):
    """Run a program of which each thread is one CTA of a cluster; returns the same as `run`."""
    size = len(threads)
    return examined(cluster_ptx(threads, counts), policy=policy, grid=size, cluster=size, block=32)


_MEET = "barrier.cluster.arrive.release; barrier.cluster.wait.acquire;"


def cluster_ptx(threads, counts):
    """Write a program of a cluster: its barriers belong to its CTAs, as many to each."""
    share = len(counts) // len(threads)
    places = range(WORDS, WORDS + 32, 16), range(PLACES, PLACES + 8 * PLACE, PLACE)
    lines = [
        "mov.u32 %r1, smem; mov.u32 %r2, %tid.x; ld.param.u64 %rd1, [p0]; mov.u32 %r4, %cluster_ctarank;",
        "setp.eq.u32 %p1, %r2, 0; @!%p1 bra END;",
        *(f"st.shared.u32 [%r1+{place}], %r2;" for some in places for place in some),
    ]
    for cta in range(len(threads)):
        mine = counts[cta * share : (cta + 1) * share]
        lines.append(f"setp.ne.u32 %p3, %r4, {cta}; @%p3 bra MADE{cta};")
        lines += [f"mbarrier.init.shared.b64 [%r1+{8 * j}], {count};" for j, count in enumerate(mine)]
        lines.append(f"MADE{cta}:")
    lines += ["fence.mbarrier_init.release.cluster; fence.proxy.async;", _MEET]
    lines += [f"setp.eq.u32 %p3, %r4, {n}; @%p3 bra THREAD{n};" for n in range(len(threads))]
    for n, ops in enumerate(threads):
        lines.append(f"THREAD{n}:")
        for at, op in enumerate(ops):
            lines += _of_cluster(op, f"{n}_{at}", n, share, len(threads))
        lines.append("bra END;")
    lines.append("END:")
    return "\n".join(lines)


def _of_cluster(op, name, thread, share, ctas):
    kind = op[0]
    if kind == "cluster_arrive":
        return ["barrier.cluster.arrive.release;"]
    if kind == "cluster_wait":
        return ["barrier.cluster.wait.acquire;"]
    if kind in ("store", "load"):
        cta, x = op[1]
        verb = (
            "st.shared::cluster.u32 [%r10], %r2;" if kind == "store" else f"ld.shared::cluster.u32 %r9, [%r10]; {FENCE}"
        )
        return [f"add.u32 %r10, %r1, {_place(x)}; mapa.shared::cluster.u32 %r10, %r10, {cta};", verb]
    bytes_of = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
    if kind == "multicast":
        to = f"[%r1+{_place(op[3])}], [%rd1], {op[2]}, [%r1+{8 * op[1]}]"
        mask = f"mov.u16 %rs1, {(1 << ctas) - 1};"
        return [mask, f"{bytes_of}.multicast::cluster {to}, %rs1;"]
    if kind == "wait_if_not":
        return _by_one_lane((*op[:2], op[2] % share, op[3]), name, thread)
    cta, j = divmod(op[1], share)
    if cta == thread:
        return _by_one_lane((kind, j, *op[2:]), name, thread)
    at = f"add.u32 %r10, %r1, {8 * j}; mapa.shared::cluster.u32 %r10, %r10, {cta};"
    if kind == "copy":
        to = f"add.u32 %r11, %r1, {_place(op[3])}; mapa.shared::cluster.u32 %r11, %r11, {cta};"
        return [at, to, f"{bytes_of} [%r11], [%rd1], {op[2]}, [%r10];"]
    verbs = {
        "arrive": "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r10];",
        "arrive_expect": f"mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [%r10], {op[-1]};",
        "expect": f"mbarrier.expect_tx.relaxed.cluster.shared::cluster.b64 [%r10], {op[-1]};",
    }
    return [at, verbs[kind]]
