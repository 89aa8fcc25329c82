"""Programmatic dependent launch: a kernel begins while the one before it in its stream ends (traced).

A kernel that is launched with ``use_pdl=True`` begins as soon as every CTA of the kernel before it has exited, or has
allowed it. The part before its wait overlaps with that kernel's end: it initialises barriers and fetches descriptors.
"""

import cutlass
import cutlass.cute as cute


@cute.jit
def follow_launch(let_next_begin: cutlass.Boolean | bool):
    """Wait until earlier launches have ended and their writes are visible; then let the next one begin, if asked to.

    All threads call, before any of them touches global memory. The next launch, which waits likewise, then takes each
    SM that this one leaves. Where this grid leaves SMs idle it had better not: the next one would find those, and then
    whichever are left first, and be spread unevenly over the GPU. (On an H200, 2026-11-23, 4x6144x6144 on 96 SMs took
    23.2 us then, and 20.6 without.) A launch that may not begin earlier begins when all CTAs of this one have exited.
    """
    cute.arch.griddepcontrol_wait()
    if let_next_begin:
        cute.arch.griddepcontrol_launch_dependents()
