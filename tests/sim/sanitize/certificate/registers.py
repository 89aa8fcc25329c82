"""Programs of warpgroups that trade registers, as PTX, and all their schedules in a model that shares no code with it.

A program has a list of operations for each warpgroup, which each of its four warps executes: ("dec", n), ("inc", n),
("arrive", b) and ("wait", b) for phase 0 of an mbarrier, and ("meet",), a barrier of the four.
"""

import random
from collections import Counter

from tests.sim.sanitize.certificate.programs import examined

AT_LAUNCH, WARPS = 64, 4
SPELLED = {
    "dec": "setmaxnreg.dec.sync.aligned.u32 {1};",
    "inc": "setmaxnreg.inc.sync.aligned.u32 {1};",
    "arrive": "mbarrier.arrive.shared.b64 _, [%r1+{2}];",
    "wait": "W{0}: mbarrier.try_wait.parity.shared.b64 %p9, [%r1+{2}], 0; @!%p9 bra W{0};",
    "meet": "bar.sync {3}, {6};",
    "issue": "setp.eq.u32 %p8, %r2, {5}; @%p8 mbarrier.expect_tx.relaxed.cta.shared.b64 [%r1+{2}], 16; "
    "@%p8 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1+{4}], [%rd1], 16, [%r1+{2}]; "
    "@%p8 mbarrier.arrive.shared.b64 _, [%r1+{2}];",
    "all": "bar.sync 0;",
    "exit": "exit;",
}
MODULE = (
    ".version 8.7\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 p0) .maxnreg 64 {{\n"
    ".reg .pred %p<16>; .reg .b32 %r<8>; .reg .b64 %rd<4>;\n.shared .align 16 .b8 smem[1024];\n{}\nret;\n}}\n"
)


def ptx(groups, counts=None, block=None):
    """Write a program; with fewer threads than four warps a group, the last one has the rest."""
    sizes = [min(128, (block or 128 * len(groups)) - 128 * n) for n in range(len(groups))]
    used = {op[1] for ops in groups for op in ops if op[0] in ("arrive", "wait", "issue")}
    per = counts or {
        b: sum(size for ops, size in zip(groups, sizes, strict=True) for op in ops if op == ("arrive", b)) for b in used
    }
    lines = [
        "mov.u32 %r1, smem; mov.u32 %r2, %tid.x; shr.u32 %r3, %r2, 7;",
        "setp.eq.u32 %p1, %r2, 0; ld.param.u64 %rd1, [p0];",
        *(f"@%p1 mbarrier.init.shared.b64 [%r1+{8 * b}], {max(per[b], 1)};" for b in used),
        "fence.mbarrier_init.release.cluster; bar.sync 0;",
        *(f"setp.eq.u32 %p2, %r3, {n}; @%p2 bra GROUP{n};" for n in range(len(groups))),
    ]
    for n, ops in enumerate(groups):
        lines.append(f"GROUP{n}:")
        for at, op in enumerate(ops):
            value = op[1] if len(op) > 1 else 0
            lines.append(
                SPELLED[op[0]].format(f"{n}_{at}", value, 8 * value, n + 1, 512 + 128 * n + 16 * at, 128 * n, sizes[n])
            )
        lines.append("bra END;")
    return "\n".join([*lines, "END:"])


def run(groups, counts=None, policy=None):
    """Run a program; returns the certificate (None if it did not end), the hazards, and the error."""
    block = 128 * len(groups)
    return examined(ptx(groups, counts), policy=policy, block=block, directives=f".maxnreg {AT_LAUNCH}")


def explore(groups):
    """Return whether some schedule ends, and whether some hangs."""
    arrivals = Counter(op[1] for ops in groups for op in ops if op[0] == "arrive")
    start = tuple((0,) * WARPS for _ in groups)
    waiting, seen, ends, hangs = [start], {start}, False, False
    while waiting:
        state = waiting.pop()
        following = list(_steps(groups, state, arrivals))
        over = all(n == len(ops) for ops, warps in zip(groups, state, strict=True) for n in warps)
        ends, hangs = ends or over, hangs or not (over or following)
        for other in following:
            if other not in seen:
                seen.add(other)
                waiting.append(other)
    return ends, hangs


def _steps(groups, state, arrivals):
    held = [[_held(ops, n) for n in warps] for ops, warps in zip(groups, state, strict=True)]
    free = AT_LAUNCH * WARPS * len(groups) - sum(map(sum, held))
    done = [op for ops, warps in zip(groups, state, strict=True) for n in warps for op in ops[:n]]
    for g, (ops, warps) in enumerate(zip(groups, state, strict=True)):
        for w in range(WARPS):
            if warps[w] == len(ops) or (w and warps[w] == warps[w - 1]):  # warps of a group are alike
                continue
            kind, *value = ops[warps[w]]
            if kind == "inc" and value[0] - held[g][w] > free:
                continue
            if kind == "wait" and done.count(("arrive", *value)) < WARPS * arrivals[value[0]]:
                continue
            if kind == "meet":
                if min(warps) < warps[w]:
                    continue
                if max(warps) == warps[w]:
                    yield (*state[:g], (warps[w] + 1,) * WARPS, *state[g + 1 :])
                continue
            now = tuple(sorted((*warps[:w], warps[w] + 1, *warps[w + 1 :]), reverse=True))
            yield (*state[:g], now, *state[g + 1 :])


def _held(ops, n):
    changes = [op[1] for op in ops[:n] if op[0] in ("inc", "dec")]
    return changes[-1] if changes else AT_LAUNCH


def drawn(seed):
    """Draw a program of three warpgroups: phases whose arrivals may never come, and registers that may not suffice."""
    random_ = random.Random(seed)
    groups = []
    for _ in range(3):
        ops, held, changes = [], AT_LAUNCH, 0
        for _ in range(random_.randint(1, 4)):
            kind = random_.choice(["change", "change", "arrive", "wait"])
            if kind == "change" and changes < 2:
                to = random_.choice([n for n in (56, 64, 72, 80) if n != held])
                ops += [("meet",)] * (changes > 0) + [("inc" if to > held else "dec", to)]
                held, changes = to, changes + 1
            elif kind != "change":
                ops.append((kind, random_.randrange(2)))
        groups.append(ops)
    arrived = [{op[1] for op in ops if op[0] == "arrive"} for ops in groups]
    return [
        [op for n, op in enumerate(ops) if op[0] != "wait" or (any(op[1] in a for a in arrived) and op not in ops[:n])]
        for ops in groups
    ]
