"""Semantics and scopes of accesses: weak, relaxed, acquire, release, as the opcode names them.

References
----------
PTX ISA, "Memory Consistency Model": "Strong Operations", "Scope", "Morally strong operations", "Vector Data-types",
"Packed Data-types", "Limitations on Mixed-size Data-races", "Release and Acquire Patterns"; "ld", "st", "atom", "red",
"membar, fence".
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from cutepy.sim.ptx.model import type_bits

WEAK, CTA, CLUSTER, GPU, SYS = range(5)
"""Scopes, each of which includes those before it; a weak operation has none."""

SCOPES = {"cta": CTA, "cluster": CLUSTER, "gpu": GPU, "sys": SYS}
NAMES = {scope: name for name, scope in SCOPES.items()}
_TYPE = re.compile(r"(?:[busf]|bf)\d+(?:x2)?")
_OLD_FENCES = {"cta": CTA, "gl": GPU, "sys": SYS}


class Strength(NamedTuple):
    """Semantics and scope of a memory operation or fence.

    Attributes
    ----------
    scope : int
        Of a strong operation; WEAK of others.
    acquires, releases : bool
    """

    scope: int
    acquires: bool
    releases: bool


_NONE = Strength(WEAK, False, False)
_TENSOR_FENCES = {
    "fence::after_thread_sync": Strength(CLUSTER, True, False),
    "fence::before_thread_sync": Strength(CLUSTER, False, True),
}


@lru_cache(maxsize=4096)
def strength(opcode: str) -> Strength:
    """Return the semantics and the scope of an opcode.

    Examples
    --------
    >>> strength("ld.acquire.gpu.global.u32")
    Strength(scope=3, acquires=True, releases=False)
    >>> strength("ld.global.u32"), strength("ld.volatile.global.u32").scope == SYS
    (Strength(scope=0, acquires=False, releases=False), True)
    >>> strength("atom.add.u32"), strength("red.release.cta.global.add.u32").releases
    (Strength(scope=3, acquires=False, releases=False), True)
    >>> strength("membar.gl") == strength("fence.acq_rel.gpu"), strength("fence.proxy.async").scope
    (True, 0)
    """
    parts = opcode.split(".")
    named = next((SCOPES[p] for p in parts if p in SCOPES), None)
    if parts[0] == "membar":
        return _NONE if "proxy" in parts else Strength(_OLD_FENCES[parts[1]], True, True)
    if parts[0] == "fence":
        order = parts[1]
        if order not in ("sc", "acq_rel", "acquire", "release"):
            return _NONE
        return Strength(CLUSTER if is_restricted(opcode) else named or SYS, order != "release", order != "acquire")
    if parts[0] == "tcgen05":  # ISA, "tcgen05 Memory Consistency Model": beside relaxed arrivals and waits of clusters
        return _TENSOR_FENCES.get(parts[1], _NONE)
    if parts[:2] == ["cp", "reduce"]:
        return Strength(GPU, False, False)
    if parts[0] in ("atom", "red"):
        acquires, releases = (any(p in parts for p in (kind, "acq_rel")) for kind in ("acquire", "release"))
        return Strength(named or GPU, acquires, releases)
    if parts[0] in ("ld", "st"):
        if "volatile" in parts or "mmio" in parts:
            return Strength(SYS, False, False)
        if "acquire" in parts or "release" in parts or "relaxed" in parts:
            return Strength(named or SYS, "acquire" in parts, "release" in parts)
    return _NONE


def is_sc(opcode: str) -> bool:
    """Return whether an opcode is a fence that is in the order of those with .sc, as membar is.

    Examples
    --------
    >>> is_sc("membar.gl"), is_sc("fence.sc.cta"), is_sc("fence.acq_rel.gpu"), is_sc("membar.proxy.alias")
    (True, True, False, False)
    """
    parts = opcode.split(".")
    return parts[:2] == ["fence", "sc"] or (parts[0] == "membar" and "proxy" not in parts)


def is_restricted(opcode: str) -> bool:
    """Return whether a fence covers shared memory only.

    Examples
    --------
    >>> is_restricted("fence.release.sync_restrict::shared::cta.cluster"), is_restricted("fence.acq_rel.cluster")
    (True, False)
    """
    return ".sync_restrict::" in opcode


@lru_cache(maxsize=4096)
def fenced_spaces(opcode: str) -> frozenset[str]:
    """Return the state spaces in which an opcode fences the generic proxy's accesses from the async proxy's.

    Those with `.sync_restrict` order one way only, and that is all that is asked of any.

    Examples
    --------
    >>> sorted(fenced_spaces("fence.proxy.async")), sorted(fenced_spaces("fence.proxy.async.global"))
    (['global', 'shared'], ['global'])
    >>> fenced_spaces("fence.proxy.async::generic.release.sync_restrict::shared::cta.cluster")
    frozenset({'shared'})
    >>> fenced_spaces("fence.proxy.alias"), fenced_spaces("fence.acq_rel.gpu")
    (frozenset(), frozenset())
    """
    words = opcode.replace(".", "::").split("::")
    if words[:3] not in (["fence", "proxy", "async"], ["membar", "proxy", "async"]):
        return frozenset()
    return frozenset({"global", "shared"} & {*words} or {"global", "shared"})


@lru_cache(maxsize=4096)
def unit_bytes(opcode: str) -> int:
    """Return how many bytes one operation of the memory model has: vectors and pairs are one for each element.

    It is 0 where the opcode does not say, as that of a reduction through a tensor map.

    Examples
    --------
    >>> unit_bytes("ld.relaxed.gpu.global.v4.u32"), unit_bytes("st.relaxed.gpu.global.b64")
    (4, 8)
    >>> unit_bytes("red.global.add.noftz.bf16x2"), unit_bytes("atom.global.cas.b128")
    (2, 16)
    >>> unit_bytes("red.global.v2.f32.add"), unit_bytes("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile")
    (4, 0)
    """
    name = next(filter(_TYPE.fullmatch, reversed(opcode.split("."))), None)
    if name is None:
        return 0
    return type_bits(name) // (16 if name.endswith("x2") else 8)


@lru_cache(maxsize=4096)
def overlap_completely(one: str, other: str) -> bool:
    """Return whether two strong operations on the same byte are on the same bytes, or each of them is one all the same.

    Each is aligned, so that they are where their sizes are. Read-modify-writes take effect one after the other in any
    case.

    Examples
    --------
    >>> overlap_completely("st.relaxed.gpu.b32", "ld.relaxed.gpu.b64"), overlap_completely("atom.add.u32", "red.or.b64")
    (False, True)
    """
    both_modify = all(opcode.partition(".")[0] in ("atom", "red", "cp") for opcode in (one, other))
    return both_modify or unit_bytes(one) == unit_bytes(other)
