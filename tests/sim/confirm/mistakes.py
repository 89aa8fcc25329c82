"""Kernels with one mistake each that a GPU can show, and what mends them.

Each takes `x` to read and `y` to write. Data goes through `box`, which is filled with zeros first, so that who comes
too early reads 0.
"""

from __future__ import annotations

from dataclasses import dataclass

_HEAD = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 x, .param .u64 y)
{
.reg .pred %p<9>; .reg .b32 %r<20>; .reg .b64 %rd<9>;
.shared .align 128 .b8 box[1024];
.shared .align 8 .b64 full;
ld.param.u64 %rd0, [x]; ld.param.u64 %rd1, [y];
mov.u32 %r0, %tid.x; shr.u32 %r1, %r0, 5; and.b32 %r2, %r0, 31;
mov.u32 %r3, box; mov.u32 %r10, full;
shl.b32 %r4, %r2, 2; add.u32 %r4, %r4, %r3;         // the lane's word of the box
mul.wide.u32 %rd2, %r0, 4; add.u64 %rd2, %rd2, %rd1; // the thread's word of y
add.u32 %r5, %r2, 1;                                 // what the lane puts into the box
setp.eq.u32 %p0, %r0, 0;                             // the first thread
setp.eq.u32 %p1, %r2, 0;                             // the first lane of a warp
setp.eq.u32 %p2, %r1, 0; setp.eq.u32 %p3, %r1, 1; setp.eq.u32 %p4, %r1, 2;
mov.u32 %r9, 0;
"""
_END = "st.global.u32 [%rd2], %r9;\nret;\n}\n"
_EMPTY = "@%p2 st.shared.u32 [%r4], 0;\n"
_BEGIN = _EMPTY + "fence.proxy.async.shared::cta;\nfence.mbarrier_init.release.cluster;\nbar.sync 0;\n"
_COPY = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r3], [%rd0], 128, [%r10];\n"


def _init(count: int) -> str:
    return f"@%p0 mbarrier.init.shared.b64 [%r10], {count};\n"


def _wait(parity: int, label: str = "WAIT") -> str:
    return f"{label}:\nmbarrier.try_wait.parity.shared.b64 %p7, [%r10], {parity};\n@!%p7 bra {label};\n"


def _kernel(*lines: str) -> str:
    return "".join((_HEAD, *lines, _END))


@dataclass(frozen=True)
class Mistake:
    """A kernel with a mistake.

    Attributes
    ----------
    kind : str
        The hazard that it is.
    ptx : str
    mend : tuple of (str, str)
        What to replace, and by what.
    grid, block : int
    words : int
        Of `x` and of `y`.
    shown : str
        How a GPU is expected to show it.
    """

    kind: str
    ptx: str
    mend: tuple[tuple[str, str], ...]
    grid: int = 1
    block: int = 64
    words: int = 256
    shown: str = "values"

    @property
    def mended(self) -> str:
        """The kernel without the mistake."""
        text = self.ptx
        for old, new in self.mend:
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        return text


MISTAKES = {
    "a wait for the second phase only": Mistake(
        "early-wait",
        _kernel(
            _init(1),
            _BEGIN,
            "@%p0 mbarrier.arrive.shared.b64 _, [%r10];\n@%p2 bra END;\n@%p3 bra READ;\n",
            _wait(0),
            "st.shared.u32 [%r4], %r5;\nbar.warp.sync -1;\n"
            "@%p1 mbarrier.arrive.shared.b64 _, [%r10];\nbra END;\nREAD:\n",
            _wait(1, "SECOND"),
            "ld.shared.u32 %r9, [%r4];\nEND:\n",
        ),
        (
            ("st.shared.u32 [%r4], %r5;\nbar.warp", "bar.sync 1, 64;\nst.shared.u32 [%r4], %r5;\nbar.warp"),
            ("READ:\n", "READ:\nbar.sync 1, 64;\n"),
        ),
        block=96,
    ),
    "a slow waiter that nobody hears from": Mistake(
        "lapped-wait",
        _kernel(
            _init(1),
            _BEGIN,
            "@%p0 mbarrier.arrive.shared.b64 _, [%r10];\n@%p2 bra MET;\n",
            _wait(0),
            "@%p3 bra END;\nMET:\nbar.sync 1, 64;\n"
            "@%p0 mbarrier.arrive.release.cta.shared.b64 _, [%r10];\n"
            "END:\nmov.u32 %r9, %r5;\n",
        ),
        (("@%p3 bra END;\n", ""), ("bar.sync 1, 64;", "bar.sync 1, 96;")),
        block=96,
        shown="hang",
    ),
    "an arrival for the next phase that does not wait for this one": Mistake(
        "early-arrival",
        _kernel(
            _init(2),
            _BEGIN,
            "@!%p0 bra NEXT;\nmbarrier.arrive.expect_tx.shared.b64 _, [%r10], 128;\n",
            _COPY,
            "NEXT:\n@%p2 bra END;\n@%p4 bra READ;\n"
            "@%p1 mbarrier.arrive.shared.b64 _, [%r10];\n"
            "bra END;\nREAD:\n"
            "@%p1 mbarrier.arrive.release.cta.shared.b64 _, [%r10];\n",
            _wait(0),
            "ld.shared.u32 %r9, [%r4];\nEND:\n",
        ),
        (("@%p4 bra READ;\n", "@%p4 bra READ;\n" + _wait(0, "FIRST")),),
        block=96,
    ),
    "bytes announced beside the arrival": Mistake(
        "premature-completion",
        _kernel(
            _init(1),
            _BEGIN,
            "@!%p0 bra NEXT;\nmbarrier.expect_tx.relaxed.cta.shared.b64 [%r10], 128;\n",
            _COPY,
            "NEXT:\n@%p2 bra WAIT;\n@%p1 mbarrier.arrive.shared.b64 _, [%r10];\n",
            _wait(0),
            "ld.shared.u32 %r9, [%r4];\n",
        ),
        (
            (
                "mbarrier.expect_tx.relaxed.cta.shared.b64 [%r10], 128;",
                "mbarrier.arrive.expect_tx.shared.b64 _, [%r10], 128;",
            ),
            ("@%p1 mbarrier.arrive.shared.b64 _, [%r10];\n", ""),
        ),
    ),
    "two arrivals at a named barrier without a wait": Mistake(
        "mixed-generation",
        _kernel(
            "@%p3 bra OTHER;\nbar.arrive 1, 64;\nbar.arrive 1, 64;\nbra END;\n"
            "OTHER:\nbar.sync 1, 64;\nbar.sync 1, 64;\nEND:\nmov.u32 %r9, %r5;\n"
        ),
        (("bar.arrive 1, 64;\nbar.arrive 1, 64;", "bar.sync 1, 64;\nbar.sync 1, 64;"),),
        shown="hang",
    ),
    "more bytes copied than announced": Mistake(
        "uneven-bytes",
        _kernel(
            _init(1),
            "@%p3 add.u32 %r4, %r4, 128; st.shared.u32 [%r4], 0;\n",
            _BEGIN.removeprefix(_EMPTY),
            "add.u32 %r6, %r3, 128; add.u64 %rd3, %rd0, 128;\n"
            "@!%p0 bra WAIT;\nmbarrier.arrive.expect_tx.shared.b64 _, [%r10], 128;\n",
            _COPY,
            _COPY.replace("%r3", "%r6").replace("%rd0", "%rd3"),
            _wait(0),
            "ld.shared.u32 %r9, [%r4];\n",
        ),
        (("_, [%r10], 128;", "_, [%r10], 256;"),),
    ),
    "an mbarrier used before it is made": Mistake(
        "unpublished-mbarrier",
        _kernel(
            _init(64),
            "mbarrier.arrive.shared.b64 _, [%r10];\n",
            _wait(0),
            "mov.u32 %r9, %r5;\n",
        ),
        (("mbarrier.arrive", "bar.sync 0;\nmbarrier.arrive"),),
        shown="hang",
    ),
    "an mbarrier made by two threads": Mistake(
        "repeated-init",
        _kernel(
            "@%p1 mbarrier.init.shared.b64 [%r10], 2;\nbar.warp.sync -1;\n@%p1 mbarrier.arrive.shared.b64 _, [%r10];\n",
            _wait(0),
            "mov.u32 %r9, %r5;\n",
        ),
        (
            (
                "@%p1 mbarrier.init.shared.b64 [%r10], 2;\nbar.warp.sync -1;",
                "@%p0 mbarrier.init.shared.b64 [%r10], 2;\nbar.sync 0;",
            ),
        ),
        shown="hang",
    ),
    "a flag of another CTA read with the scope of the own": Mistake(
        "too-narrow-scope",
        _kernel(
            "mov.u32 %r6, %ctaid.x; setp.ne.u32 %p5, %r6, 0;\n@%p5 add.u64 %rd2, %rd2, 128; @%p5 bra READER;\n"
            "ASKED:\nld.acquire.gpu.global.u32 %r6, [%rd1+1020]; setp.eq.u32 %p6, %r6, 0; @%p6 bra ASKED;\n"
            "st.global.u32 [%rd0], 7;\nst.release.gpu.global.u32 [%rd1+1016], 1;\nbra END;\n"
            "READER:\nld.global.u32 %r9, [%rd0+4];\n"  # its neighbour: the L1 cache has both now
            "st.release.gpu.global.u32 [%rd1+1020], %r9;\n"
            "RAISED:\nld.acquire.cta.global.u32 %r6, [%rd1+1016]; setp.eq.u32 %p6, %r6, 0; @%p6 bra RAISED;\n"
            "ld.global.u32 %r9, [%rd0];\n\nEND:\n"
        ),
        (("ld.acquire.cta", "ld.acquire.gpu"),),
        grid=2,
        block=1,
    ),
    "a value read again through the cache that is not coherent": Mistake(
        "non-coherent-read",
        _kernel(
            "mul.wide.u32 %rd3, %r0, 4; add.u64 %rd3, %rd3, %rd0;\nld.global.nc.u32 %r6, [%rd3];\n"
            "add.u32 %r6, %r6, 1000; st.global.u32 [%rd3], %r6;\nbar.sync 0;\nld.global.nc.u32 %r9, [%rd3];\n"
        ),
        (
            ("bar.sync 0;\nld.global.nc.u32 %r9", "bar.sync 0;\nld.global.u32 %r9"),
            ("ld.global.nc.u32 %r6", "ld.global.u32 %r6"),
        ),
    ),
    "a copy over its own mbarrier": Mistake(
        "overwritten-mbarrier",
        _kernel(
            "add.u32 %r10, %r3, 128;\n",
            _init(1),
            _BEGIN,
            "@!%p0 bra WAIT;\nmbarrier.arrive.expect_tx.shared.b64 _, [%r10], 256;\n",
            _COPY.replace("128", "256"),
            _wait(0),
            "ld.shared.u32 %r9, [%r4];\n",
        ),
        (("add.u32 %r10, %r3, 128;", "add.u32 %r10, %r3, 256;"),),
        shown="hang",
    ),
    "a word read in a CTA that may have ended": Mistake(
        "exited-peer",
        _kernel(
            "mov.u32 %r7, %cluster_ctarank; add.u32 %r6, %r5, %r7; st.shared.u32 [%r4], %r6;\n"
            "xor.b32 %r8, %r7, 1; mapa.shared::cluster.u32 %r6, %r4, %r8;\n"
            "barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;\n"
            "setp.eq.u32 %p5, %r7, 1; @%p5 add.u64 %rd2, %rd2, 512; @%p5 bra AWAY;\n"
            "ld.shared::cluster.u32 %r9, [%r6];\nAWAY:\n"
        ).replace(
            "(.param .u64 x, .param .u64 y)",
            "(.param .u64 x, .param .u64 y) .explicitcluster .reqnctapercluster 2, 1, 1",
        ),
        (("AWAY:\n", "AWAY:\nbarrier.cluster.arrive;\nbarrier.cluster.wait;\n"),),
        grid=2,
        block=32,
        shown="error",
    ),
    "two warps of four that give back registers": Mistake(
        "partial-warpgroup",
        _kernel(
            "setp.lt.u32 %p5, %r0, 64; @!%p5 bra REST;\nsetmaxnreg.dec.sync.aligned.u32 40;\nREST:\nmov.u32 %r9, %r5;\n"
        ).replace(
            "(.param .u64 x, .param .u64 y)", "(.param .u64 x, .param .u64 y) .reqntid 128, 1, 1 .minnctapersm 1"
        ),
        (("@!%p5 bra REST;\n", ""),),
        block=128,
    ),
    "a bulk store of what threads wrote, without a fence": Mistake(
        "missing-proxy-fence",
        _kernel(
            "shl.b32 %r6, %r0, 5; add.u32 %r6, %r6, %r3; add.u32 %r7, %r0, 1;\n"
            "st.shared.v4.u32 [%r6], {%r7, %r7, %r7, %r7};\nst.shared.v4.u32 [%r6+16], {%r7, %r7, %r7, %r7};\n"
            "bar.sync 0;\n@!%p0 bra END;\n"
            "cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r3], 32768;\n"
            "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\nEND:\nret;\n"
        ).replace("box[1024]", "box[32768]"),
        (("bar.sync 0;\n@!%p0", "fence.proxy.async.shared::cta;\nbar.sync 0;\n@!%p0"),),
        block=1024,
        words=8192,
    ),
    "two warps and no barrier": Mistake(
        "unordered-read",
        _kernel(_EMPTY, "bar.sync 0;\n@%p2 st.shared.u32 [%r4], %r5;\n@%p3 ld.shared.u32 %r9, [%r4];\n"),
        (("@%p3 ld", "bar.sync 0;\n@%p3 ld"),),
    ),
    "bytes written while another warp reads them": Mistake(
        "unordered-write",
        _kernel(
            "@%p2 st.shared.u32 [%r4], %r5;\nbar.sync 0;\n"
            "@%p2 ld.shared.u32 %r9, [%r4];\n@%p3 st.shared.u32 [%r4], 99;\n"
        ),
        (("@%p3 st", "bar.sync 0;\n@%p3 st"),),
    ),
    "shared memory that nothing wrote": Mistake(
        "uninitialised-read",
        _kernel("ld.shared.u32 %r9, [%r4];\n"),
        (("ld.shared.u32 %r9", _EMPTY + "bar.sync 0;\nld.shared.u32 %r9"),),
    ),
}


@dataclass(frozen=True)
class PageMistake:
    """The script of a page on hazards, with changes, and what mends it.

    Attributes
    ----------
    kind : str
        Also whose page it is.
    change : tuple of (str, str)
        What to replace first, and by what.
    mend : tuple of (str, str), or None
        What to replace then; None for what the page says.
    shown : str
    """

    kind: str
    change: tuple[tuple[str, str], ...] = ()
    mend: tuple[tuple[str, str], ...] | None = None
    shown: str = "values"


_USE = """    with cute.arch.elect_one():
        cute.arch.mbarrier_arrive_and_expect_tx(full, 1024)
    cute.copy(load, of, to, tma_bar_ptr=full, tma_desc_ptr=by)
    cute.arch.mbarrier_wait(full, {})
"""
_CHANGED = "    cpasync.update_tma_descriptor(load, y, own)\n    cute.arch.sync_warp()\n"
_BY = "    by = maps.get_tensormap_ptr(space.iterator, cute.AddressSpace.generic)\n"

FROM_PAGES = {
    "a tile that is read through another swizzle": PageMistake(
        "layout-mismatch",
        (
            ("torch.rand(64, 64).half()", "(torch.arange(4096) % 61).reshape(64, 64).half()"),
            ("sB[thread, k] = cutlass.Float16(1)", "sB[thread, k] = cutlass.Float16(k)"),
        ),
        shown="as simulated",
    ),
    "a dependent launch that does not wait": PageMistake("early-access"),
    "a tensor map that is used, changed, and used again": PageMistake(
        "missing-tensormap-fence",
        (
            ("mmap(-1, 4096)", "mmap(-1, 4096, flags=34)"),  # private, as launches on it are played again
            (
                _CHANGED + "    cpasync.fence_tma_desc_acquire(own)\n",
                "    cpasync.fence_tma_desc_release()\n"
                "    cute.arch.sync_warp()\n    cpasync.fence_tma_desc_acquire(own)\n",
            ),
            (
                "    with cute.arch.elect_one():\n        cute.arch.mbarrier_arrive_and_expect_tx(full, 1024)\n"
                + _BY
                + "    cute.copy(load, of, to, tma_bar_ptr=full, tma_desc_ptr=by)\n"
                + "    cute.arch.mbarrier_wait(full, 0)\n",
                _BY + _USE.format(0) + _CHANGED + _USE.format(1),
            ),
        ),
        (
            (
                _CHANGED,
                _CHANGED
                + "    cpasync.fence_tma_desc_release()\n    cute.arch.sync_warp()\n"
                + "    cpasync.fence_tma_desc_acquire(own)\n",
            ),
        ),
    ),
}
