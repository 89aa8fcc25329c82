"""Opcodes as texts spell them, written as the ISA's syntax has them: blanks, and the order of modifiers.

ptxas takes blanks before the dots of modifiers, and modifiers in any order, as long as those of one kind, such as two
types, keep theirs: CUDA's headers write ``max.s32.relu``, CUB ``vote.ballot.sync.b32``, CUTLASS
``ldmatrix.sync.aligned.x4.m8n8`` in older versions, Triton ``tcgen05.cp.cta_group::1.warpx4.32x128b``.

References
----------
PTX ISA, the syntax of each instruction; what ptxas 13.0 takes of all orders of 200 opcodes.
"""

from __future__ import annotations

import re
from functools import lru_cache

from cutepy.sim.ptx.tokens import PtxSyntaxError

_KINDS = {
    "dimensions": "[1-5]d a[12]d cube acube",
    "variant": "parity noComplete noinc (?:tensormap|async)::generic mbarrier_init",
    "reduction": "red",
    "sparsity": r"sp(?:::\w+)?",
    "sync": "sync",
    "aligned": "aligned",
    "shape": r"m\d+n\d+(?:k\d+)?",
    "lanes": r"\d+x\d+b(?:x2)?",
    "warps": r"warpx[24](?:::\w+)?",
    "count": r"x\d+",
    "packing": "(?:un)?pack::16b",
    "transposition": "trans",
    "layout": "row col",
    "kind": r"kind::\w+",
    "block_scale": "block_scale",
    "scale_vector": r"scale_vec::\w+ block16 block32",
    "access": "mmio volatile",
    "order": "weak relaxed acquire release acq_rel sc",
    "restriction": r"sync_restrict::\w+(?:::\w+)?",
    "scope": "cta cluster gpu sys",
    "space": r"const global local (?:shared|param)(?:::\w+)?",
    "comparison": "eq ne [lg][te]u? lo ls hi hs wide equ neu num nan",
    "operation": "add min max inc dec and or xor exch cas popc all any uni ballot up down bfly idx",
    "precision": r"acc::\w+",
    "noftz": "noftz",
    "mode": "tile(?:::gather4|::scatter4)? im2col wrap clamp trap zero shiftamt finite infinite number notanumber "
    "normal subnormal",
    "field": "global_address rank box_dim global_dim global_stride element_stride elemtype interleave_layout "
    "swizzle_mode fill_mode",
    "query": "width height depth array_size num_mipmap_levels num_samples normalized_coords force_unnormalized_coords "
    "channel_data_type channel_order memory_layout filter_mode addr_mode_[012]",
    "completion": "mbarrier::complete_tx::bytes mbarrier::arrive::one bulk_group",
    "multicast": "multicast::cluster",
    "group": "cta_group::[12]",
    "ashift": "ashift",
    "collector": r"collector::\w+::\w+",
    "cache": "ca cg cs lu cv wb wt",
    "nc": "nc",
    "L1": r"L1(?:::\w+)?",
    "L2": r"L2(?:::[a-z]\w+)?",
    "prefetch": r"L2::\d+B",
    "cp_mask": "cp_mask",
    "vector": "v[248]",
    "rounding": "r[nzmp]i? rna rs approx full",
    "ftz": "ftz",
    "NaN": "NaN",
    "xorsign": "xorsign",
    "abs": "abs",
    "po": "po",
    "sat": "sat",
    "satfinite": "satfinite",
    "oob": "oob",
    "relu": "relu",
    "cc": "cc",
    "scale": "shr7 shr15",
    "object": "b1024",
    "type": r"pred [busf]\d+(?:x[24])? bf16(?:x2)? tf32 u?e\dm\d(?:x[24])?",
    "decompression": r"b8x16 b[46]x16_p\d+",
    "selection": "f4e b4e rc8 ecl ecr rc16",
}
"""The kinds of modifiers, as regular expressions, in the order of most instructions."""

_OTHER_ORDERS = {
    "bar": "scope reduction operation sync aligned type",
    "barrier": "scope reduction operation sync aligned type",
    "match": "operation sync type",
    "setmaxnreg": "operation sync aligned type",
    "cp.async": "cache space L2 prefetch",
    "cp.async.bulk.prefetch": "L2 space",
    "cp.async.bulk.prefetch.tensor": "dimensions L2 space mode",
    "cp.reduce.async.bulk": "space completion L2 operation noftz type",
    "red.async": "order scope space completion operation type",
    "tcgen05": "sparsity group sync aligned completion space multicast lanes warps count packing kind "
    "block_scale scale_vector ashift collector operation type decompression",
    "tensormap.replace": "mode field space object type",
    "tensormap.cp_fenceproxy": "space variant order scope sync aligned",
    "mma": "sparsity sync aligned shape layout kind block_scale scale_vector rounding satfinite type operation",
    "wgmma": "sparsity sync aligned shape satfinite type operation",
    "wmma": "operation sync aligned layout shape rounding space type satfinite",
}
_DOTTED_NAMES = """
bar.arrive bar.cta bar.cta.arrive bar.cta.red bar.red bar.warp barrier.arrive barrier.cta barrier.cta.arrive
barrier.cta.red barrier.cluster.arrive barrier.cluster.wait barrier.red brx.idx cp.async cp.async.bulk
cp.async.bulk.commit_group cp.async.bulk.prefetch cp.async.bulk.prefetch.tensor cp.async.bulk.tensor
cp.async.bulk.wait_group cp.async.commit_group cp.async.mbarrier.arrive cp.async.wait_all cp.async.wait_group
cp.reduce.async.bulk cp.reduce.async.bulk.tensor createpolicy.cvt createpolicy.fractional createpolicy.range cvt.pack
cvta.to div.full dp2a.hi dp2a.lo fence.proxy mad.hi mad.lo mad.wide mad24.hi mad24.lo madc.hi madc.lo mbarrier.arrive
mbarrier.arrive.expect_tx mbarrier.arrive_drop mbarrier.arrive_drop.expect_tx mbarrier.complete_tx mbarrier.expect_tx
mbarrier.init mbarrier.inval mbarrier.pending_count mbarrier.test_wait mbarrier.test_wait.parity mbarrier.try_wait
mbarrier.try_wait.parity membar.proxy mul.hi mul.lo mul.wide mul24.hi mul24.lo multimem.ld_reduce multimem.red
multimem.st pmevent.mask red.async setmaxnreg.dec setmaxnreg.inc shf.l shf.r st.async tensormap.cp_fenceproxy
tensormap.replace wgmma.commit_group wgmma.fence wgmma.mma_async wgmma.wait_group wmma.load.a wmma.load.b wmma.load.c
wmma.mma wmma.store.d
""".split()
"""Names of instructions that are one token of ptxas: no blank stands within one, and a number may follow it at once."""
_NAME = re.compile(f"(?:{'|'.join(map(re.escape, sorted(_DOTTED_NAMES, key=len, reverse=True)))})(?![a-z_$])")
OPCODE = rf"(?:{_NAME.pattern}|[a-z]\w*+(?!\$))(?:\s*+\.[\w:$]++)*+"
"""A regular expression of opcodes, with blanks before their modifiers."""
_FIRST: dict[str, set[str]] = {}
for _name in _DOTTED_NAMES:
    _FIRST.setdefault(_name.partition(".")[0], set()).add(_name.rpartition(".")[2])
_REPEATED = frozenset("approx sync shiftamt uni NaN relu".split())
"""Modifiers that may be there twice, for once."""
_KIND = re.compile("|".join(f"(?P<{kind}>{'|'.join(words.split())})" for kind, words in _KINDS.items()))


def without_blanks(opcode: str) -> str:
    """Return an opcode without the blanks before its modifiers.

    Raises
    ------
    PtxSyntaxError
        If there is a blank within the name of the instruction.

    Examples
    --------
    >>> without_blanks("mul.lo .s32"), without_blanks("bar .sync")
    ('mul.lo.s32', 'bar.sync')
    """
    found = "".join(opcode.split())
    name = _NAME.match(found)
    if found != opcode and name is not None and not opcode.startswith(name[0]):
        raise PtxSyntaxError(f"{name[0]} is one word; delete the blank in it")
    return found


@lru_cache(maxsize=4096)
def usual(opcode: str) -> str:
    """Return an opcode in the usual order; as it is if it has a modifier of no known kind, or one at a wrong place.

    Examples
    --------
    >>> usual("max.s32.relu"), usual("ldmatrix.sync.aligned.x4.trans.m8n8.shared.b16")
    ('max.relu.s32', 'ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16')
    >>> usual("vote.ballot.sync.b32"), usual("match.sync.any.b32"), usual("cvt.f16.f32.rn")
    ('vote.sync.ballot.b32', 'match.any.sync.b32', 'cvt.rn.f16.f32')
    >>> usual("tcgen05.cp.cta_group::1.warpx4.32x128b")
    'tcgen05.cp.cta_group::1.32x128b.warpx4'
    """
    # Modifiers are sorted by their kinds; those of one kind stay in their order.
    first, *modifiers = opcode.split(".")
    modifiers = [part for n, part in enumerate(modifiers) if part not in _REPEATED or part not in modifiers[:n]]
    kinds = [found.lastgroup or "" if (found := _KIND.fullmatch(part)) else "" for part in modifiers]
    # What comes first and is of no kind belongs to the instruction's name.
    start = next((n for n, kind in enumerate(kinds) if kind), len(kinds))
    name = ".".join((first, *modifiers[:start]))
    order = _OTHER_ORDERS.get(name, _OTHER_ORDERS.get(first))
    places = {kind: n for n, kind in enumerate(order.split() if order else _KINDS)}
    leading = _FIRST.get(first, ())
    is_misplaced = any(
        part in leading and modifiers[n - 1] not in leading for n, part in enumerate(modifiers) if n > start
    )
    if is_misplaced or any(kind not in places for kind in kinds[start:]):
        return ".".join((first, *modifiers))
    ordered = sorted(zip(kinds[start:], modifiers[start:], strict=True), key=lambda item: places[item[0]])
    return ".".join((name, *(part for _, part in ordered)))
