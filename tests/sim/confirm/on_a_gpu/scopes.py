"""Message passing between two CTAs, millions of times: which scopes of release and acquire let old data be read.

One warp of a CTA writes 32 words, and a lane of it raises a flag; a warp of another CTA, on another multiprocessor,
waits for the flag and reads the words, each lane one, and counts those that are of an earlier round. Data is in the
reader's shared memory or in global memory, 128 bytes apart; the flag is an mbarrier of the reader's or a word of global
memory. The reader had the words of the round before in its L1 cache. It hands back by a relaxed arrival or store that
depends on what it read. Both sides spin for a random time in each round.

python scopes.py [SECONDS]: a line for each variant, and JSON at the end.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import time

from cutepy.sim.replay.reproducers.gpu_driver import Gpu

CTAS, SMEM_BYTES, ROUNDS = 120, 200 << 10, 20_000
"""So much shared memory that each CTA has a multiprocessor of its own."""

_HEAD = """.version 8.6
.target sm_90a
.address_size 64
.extern .shared .align 128 .b8 box[];
.visible .entry k(.param .u64 data, .param .u64 out, .param .u32 rounds, .param .u32 seed)
{
.reg .pred %p<9>; .reg .b32 %r<40>; .reg .b64 %rd<20>;
ld.param.u64 %rd0, [data]; ld.param.u64 %rd1, [out]; ld.param.u32 %r0, [rounds]; ld.param.u32 %r20, [seed];
mov.u32 %r1, %laneid; mov.u32 %r2, %ctaid.x; shr.u32 %r3, %r2, 1; and.b32 %r4, %r2, 1; // pair, and 1 for the writer
setp.eq.u32 %p1, %r1, 0; setp.ne.u32 %p2, %r4, 0;
mad.lo.u32 %r20, %r2, 747796405, %r20; or.b32 %r20, %r20, 1;
mul.wide.u32 %rd2, %r3, 16384; add.u64 %rd2, %rd2, %rd0;            // 4 KiB of data, and two flags
add.u64 %rd3, %rd2, 8192; add.u64 %rd4, %rd2, 12288;                // the writer's flag, and the reader's
mul.wide.u32 %rd5, %r1, 128; add.u64 %rd5, %rd5, %rd2;              // the lane's word of global memory
mov.u32 %r5, box; add.u32 %r6, %r5, 8; shl.b32 %r7, %r1, 7; add.u32 %r7, %r7, %r5; add.u32 %r7, %r7, 1024;
xor.b32 %r8, %r4, 1;
mapa.shared::cluster.u32 %r9, %r5, %r8; mapa.shared::cluster.u32 %r10, %r6, %r8;
mapa.shared::cluster.u32 %r11, %r7, %r8;
@%p1 mbarrier.init.shared.b64 [%r5], 1;
@%p1 mbarrier.init.shared.b64 [%r6], 1;
st.shared.u32 [%r7], 0;
fence.mbarrier_init.release.cluster;
mov.u32 %r30, 0; mov.u32 %r31, 0; mov.u32 %r32, 0;
barrier.cluster.arrive.release; barrier.cluster.wait.acquire;
mov.u32 %r12, 0;
ROUND:
and.b32 %r13, %r12, 1; add.u32 %r14, %r12, 1;                       // the parity, and what is written
mad.lo.u32 %r20, %r20, 1664525, 1013904223; shr.u32 %r21, %r20, 24; // up to 255 turns
SPIN: setp.eq.u32 %p3, %r21, 0; @%p3 bra SPUN; add.u32 %r21, %r21, -1; bra SPIN;
SPUN:
bar.warp.sync -1;
@!%p2 bra READER;
"""
_WRITER = """{write}
bar.warp.sync -1;
{raise_flag}
{await_back}
bra NEXT;
READER:
{await_flag}
{read}
setp.ne.u32 %p4, %r15, %r14; @%p4 add.u32 %r30, %r30, 1;
and.b32 %r16, %r15, 0; bar.warp.sync -1;
redux.sync.or.b32 %r16, %r16, -1;                                   // all lanes have read
{hand_back}
NEXT:
"""
_END = """add.u32 %r12, %r12, 1; setp.lt.u32 %p5, %r12, %r0; @%p5 bra ROUND;
barrier.cluster.arrive.release; barrier.cluster.wait.acquire;
atom.relaxed.gpu.global.add.u32 %r33, [%rd1], %r30;
atom.relaxed.gpu.global.add.u32 %r33, [%rd1+4], %r31;
mov.u32 %r34, %smid; @%p2 st.shared::cluster.u32 [%r9+512], %r34;
barrier.cluster.arrive.release; barrier.cluster.wait.acquire;
@%p2 bra END;
ld.shared.u32 %r35, [%r5+512]; setp.eq.u32 %p6, %r34, %r35; @%p6 atom.relaxed.gpu.global.add.u32 %r33, [%rd1+8], 1;
END: ret;
}
"""


def _turn(wait: str, place: str, parity: str, label: str) -> str:
    return f"{label}: mbarrier.try_wait.parity{wait}.shared.b64 %p7, [{place}], {parity};\n@!%p7 bra {label};"


def by_mbarrier(space: str, release: str, acquire: str) -> str:
    """Write a kernel whose flag is the reader's mbarrier."""
    where = "global.u32 [%rd5]" if space == "global" else "shared::cluster.u32 [%r11]"
    here = "global.u32 %r15, [%rd5]" if space == "global" else "shared.u32 %r15, [%r7]"
    return (
        _HEAD
        + _WRITER.format(
            write=f"st.{where}, %r14;",
            raise_flag=f"@%p1 mbarrier.arrive{release}.shared::cluster.b64 _, [%r9];",
            await_back=_turn(".relaxed.cluster", "%r6", "%r13", "BACK"),
            await_flag=_turn(acquire, "%r5", "%r13", "FLAG"),
            read=f"ld.{here};",
            hand_back="add.u32 %r17, %r10, %r16;\n@%p1 mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%r17];",
        )
        + _END
    )


def by_word(release: str, acquire: str) -> str:
    """Write a kernel whose flag is a word of global memory; who does not see it in 10,000 tries looks beyond L1."""
    return (
        _HEAD
        + _WRITER.format(
            write="st.global.u32 [%rd5], %r14;",
            raise_flag=f"@%p1 st{release}.global.u32 [%rd3], %r14;",
            await_back="BACK: ld.relaxed.gpu.global.u32 %r18, [%rd4]; setp.ne.u32 %p7, %r18, %r14; @%p7 bra BACK;",
            await_flag=f"""mov.u32 %r19, 0;
FLAG: ld{acquire}.global.u32 %r18, [%rd3]; setp.eq.u32 %p7, %r18, %r14; @%p7 bra SEEN;
add.u32 %r19, %r19, 1; setp.lt.u32 %p7, %r19, 10000; @%p7 bra FLAG;
FAR: ld.relaxed.gpu.global.u32 %r18, [%rd3]; setp.ne.u32 %p7, %r18, %r14; @%p7 bra FAR;
add.u32 %r31, %r31, 1;
SEEN:""",
            read="ld.global.u32 %r15, [%rd5];",
            hand_back="add.u32 %r17, %r14, %r16;\n@%p1 st.relaxed.gpu.global.u32 [%rd4], %r17;",
        )
        + _END
    )


VARIANTS = {
    "shared memory, arrive.release.cluster, try_wait": by_mbarrier("shared", ".release.cluster", ""),
    "shared memory, arrive.release.cluster, try_wait.acquire.cluster": by_mbarrier(
        "shared", ".release.cluster", ".acquire.cluster"
    ),
    "shared memory, arrive (.cta), try_wait": by_mbarrier("shared", "", ""),
    "shared memory, arrive.relaxed.cluster, try_wait.relaxed.cluster": by_mbarrier(
        "shared", ".relaxed.cluster", ".relaxed.cluster"
    ),
    "global memory, arrive.release.cluster, try_wait": by_mbarrier("global", ".release.cluster", ""),
    "global memory, arrive.release.cluster, try_wait.acquire.cluster": by_mbarrier(
        "global", ".release.cluster", ".acquire.cluster"
    ),
    "global memory, arrive (.cta), try_wait": by_mbarrier("global", "", ""),
    "global memory, arrive (.cta), try_wait.acquire.cluster": by_mbarrier("global", "", ".acquire.cluster"),
    "global memory, arrive.relaxed.cluster, try_wait.relaxed.cluster": by_mbarrier(
        "global", ".relaxed.cluster", ".relaxed.cluster"
    ),
    "global memory, st.release.gpu, ld.acquire.gpu": by_word(".release.gpu", ".acquire.gpu"),
    "global memory, st.release.cta, ld.acquire.gpu": by_word(".release.cta", ".acquire.gpu"),
    "global memory, st.release.gpu, ld.acquire.cta": by_word(".release.gpu", ".acquire.cta"),
    "global memory, st.release.cta, ld.acquire.cta": by_word(".release.cta", ".acquire.cta"),
    "global memory, st.relaxed.gpu, ld.relaxed.gpu": by_word(".relaxed.gpu", ".relaxed.gpu"),
}


def measure(name: str, seconds: float) -> dict[str, object]:
    """Run a variant again and again for some seconds."""
    gpu = Gpu()
    function = gpu.function(gpu.load(VARIANTS[name]), "k", SMEM_BYTES, 2)
    memory, stream = ctypes.c_uint64(), gpu.stream(True)
    size = CTAS // 2 * 16384 + 4096
    gpu.call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(size))
    out = memory.value + size - 4096
    what = {"grid": [CTAS, 1, 1], "block": [32, 1, 1], "cluster": [2, 1, 1], "smem_bytes": SMEM_BYTES}
    counts, rounds, start = [0, 0, 0], 0, time.monotonic()
    while time.monotonic() < start + seconds:
        gpu.call("cuMemcpyHtoD_v2", memory, bytes(size), ctypes.c_size_t(size))
        values = (memory.value.to_bytes(8, "little"), out.to_bytes(8, "little"))
        seed = rounds * 2654435761 % 2**32
        gpu.launch(function, what, [*values, ROUNDS.to_bytes(4, "little"), seed.to_bytes(4, "little")], stream)
        if not gpu.has_ended([stream], 10.0):
            return {"name": name, "rounds": rounds, "ended": "hang"}
        block = ctypes.create_string_buffer(12)
        gpu.call("cuMemcpyDtoH_v2", block, ctypes.c_uint64(out), ctypes.c_size_t(12))
        found = [int.from_bytes(block.raw[n : n + 4], "little") for n in (0, 4, 8)]
        counts = [a + b for a, b in zip(counts, found, strict=True)]
        rounds += CTAS // 2 * ROUNDS
    told = {"rounds": rounds, "words_read": 32 * rounds, "old_words": counts[0], "flags_not_seen": counts[1]}
    return {"name": name, **told, "pairs_on_one_sm": counts[2] // 32, "ended": ""}


def main() -> None:
    """Run each variant in a process of its own."""
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(measure(sys.argv[2], float(sys.argv[3]))), flush=True)
        os._exit(0)
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 2.0
    results = []
    for name in VARIANTS:
        command = [sys.executable, __file__, "--child", name, str(seconds)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 30, check=False)
            lines = done.stdout.strip().splitlines()
            result = (
                json.loads(lines[-1])
                if lines
                else {"name": name, "ended": (done.stderr.strip().splitlines() or ["nothing"])[-1]}
            )
        except subprocess.TimeoutExpired:
            result = {"name": name, "ended": "no end"}
        results.append(result)
        said = f"{result.get('old_words', '-')} of {result.get('words_read', '-')} words old"
        print(f"{name}: {said}, {result.get('flags_not_seen', '-')} flags not seen; {result['ended']}", flush=True)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
