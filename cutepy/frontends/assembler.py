"""Remarks of ptxas on launched kernels, if ptxas is installed; each module is assembled once.

The remarks are cached on disk, by the PTX and the installed assemblers.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cutepy.binaries.cubin import KernelResources
from cutepy.binaries.ptxas import Advice, AssemblyError, assemble, find_ptxas
from cutepy.binaries.spills import Spill
from cutepy.host import environment
from cutepy.host.folder import CacheFolderError
from cutepy.host.store import Entry, Store, assembler_store

_VERSION = 1
"""Counts the changes of what is kept."""


@dataclass(frozen=True)
class Answer:
    """The remarks of ptxas on a module, and the resources of its kernels; the cubin is not kept.

    Attributes
    ----------
    resources : tuple of KernelResources
    advice : tuple of Advice
    spilled : mapping of str to tuple of Spill
        By the mangled names of kernels that spill registers, as far as a disassembler says where.
    """

    resources: tuple[KernelResources, ...]
    advice: tuple[Advice, ...]
    spilled: Mapping[str, tuple[Spill, ...]]

    def spills(self, kernel: str) -> tuple[Spill, ...] | None:
        """Return the places where a kernel spills registers; None without a suitable disassembler."""
        return self.spilled.get(kernel)


_answers: dict[bytes, Answer | None] = {}
"""By digest of the PTX."""


def ask_ptxas(ptx: str) -> Answer | None:
    """Assemble a module with the ptxas that is installed; None if there is none, or it refuses."""
    digest = hashlib.sha256(ptx.encode()).digest()
    if digest not in _answers:
        _answers[digest] = _answer(ptx)
    return _answers[digest]


def _answer(ptx: str) -> Answer | None:
    store = _store()
    try:
        key = _key(ptx) if store is not None else ""
        entry = None if store is None else store.load(key)
        if entry is not None:
            return _decoded(entry.metadata)
        answer, is_whole = _asked(ptx)
        if store is not None and is_whole:
            store.save(key, Entry(_encoded(answer), {}))
    except AssemblyError:
        return None
    except CacheFolderError:  # others could write there
        return _asked(ptx)[0]
    return answer


def _asked(ptx: str) -> tuple[Answer, bool]:
    """Ask ptxas; tells as well whether all is known that a later process may ask."""
    assembly = assemble(ptx)
    spilled = {}
    for kernel in assembly.resources:
        if kernel.spill_store_bytes + kernel.spill_load_bytes:
            spilled[kernel.name] = assembly.spills(kernel.name)
    known = {name: found for name, found in spilled.items() if found is not None}
    return Answer(assembly.resources, assembly.advice, known), len(known) == len(spilled)


def _store() -> Store | None:
    try:
        return assembler_store() if environment.cache_enabled() else None
    except ModuleNotFoundError:  # the platform's folder is unknown
        return None


def _key(ptx: str) -> str:
    """Return the key of a module: another file of an assembler may say something else."""
    tools = [(str(tool), tool.stat().st_size, tool.stat().st_mtime_ns) for tool in find_ptxas()]
    return hashlib.sha256(f"{_VERSION}\n{tools}\n{ptx}".encode()).hexdigest()


def _encoded(answer: Answer) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(answer)))  # lists for tuples
    return found


def _decoded(kept: Mapping[str, Any]) -> Answer:
    def resources(one: dict[str, Any]) -> KernelResources:
        threads = one["required_threads"]
        return KernelResources(**{**one, "required_threads": None if threads is None else tuple(threads)})

    return Answer(
        tuple(resources(one) for one in kept["resources"]),
        tuple(Advice(**one) for one in kept["advice"]),
        {name: tuple(Spill(**one) for one in found) for name, found in kept["spilled"].items()},
    )
