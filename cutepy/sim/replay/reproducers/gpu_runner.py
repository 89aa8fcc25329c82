"""Launch kernels many times on a GPU, with delays and without, and compare the results: it needs a driver only.

`main` gets the launches of a script. It starts a process for each way to launch, with delays and without, so that a
hang or a fault ends only that process. It prints a line for each way, and a verdict. The memory after a launch is
compared with the simulator's, and with the simulator's where the sides of the hazard come in another order. Bytes that
depend on uninitialised registers are not compared.
"""

from __future__ import annotations

import base64
import ctypes
import hashlib
import json
import os
import subprocess
import sys
import time
import zlib
from array import array
from collections import Counter
from typing import Any

from cutepy.sim.replay.reproducers.gpu_driver import FILL, FILLED_BYTES, FILLING, Gpu

WAYS = {
    "as it is": (0, 0, False, False),
    "the first side delayed": (1, 0, False, True),
    "the second side delayed": (0, 1, False, True),
    "shared memory is NaN before and after": (0, 0, True, False),
}
"""Variants of a trial: each side is delayed or not, other CTAs fill shared memory with NaN, the PTX has delays."""

DELAY_NS = 300_000
HANG_S, LONGEST_S, TIMEOUT_S = 3.0, 10.0, 60.0
"""Time limits of launches that follow each other, of their repetition, and of all of it."""

HUNG = 3
"""The exit status of a process whose launch does not end."""

_PHASE, _STRETCH = 1024, 4096


Relocations = list[tuple[int, int, int]]
"""Of each range its address and bytes as they were, and its address now."""


def pointers(data: bytes, relocations: Relocations) -> dict[int, bytes]:
    r"""Return the words that point into the recorded memory, by offset, with their relocated values.

    Examples
    --------
    >>> pointers(bytes(8) + (5000).to_bytes(8, "little"), [(4096, 1024, 100)])
    {8: b'\xec\x03\x00\x00\x00\x00\x00\x00'}
    """
    words = array("Q", data[: len(data) // 8 * 8])
    least, most = (
        min((at for at, _, _ in relocations), default=0),
        max((at + size for at, size, _ in relocations), default=0),
    )
    return {
        8 * n: (word - address + now).to_bytes(8, "little")
        for n, word in enumerate(words)
        if least <= word < most
        for address, size, now in relocations
        if address <= word < address + size
    }


def moved(data: bytes, relocations: Relocations) -> bytes:
    r"""Let words that point into memory as it was point to where it is now.

    Examples
    --------
    >>> moved((5000).to_bytes(8, "little") + bytes(8), [(4096, 1024, 100)])[:2]
    b'\xec\x03'
    """
    words = bytearray(data)
    for at, word in pointers(data, relocations).items():
        words[at : at + 8] = word
    return bytes(words)


def unpacked(text: str) -> bytes:
    """Return the data that a script carries."""
    return zlib.decompress(base64.b85decode(text))


class PreparedLaunches:
    """The launches of a script on a GPU, with memory of its own, in one of the `WAYS`."""

    def __init__(self, gpu: Gpu, what: dict[str, Any], way: str) -> None:
        self.gpu, self.what = gpu, what
        first, second, filled, delayed = WAYS[way]
        self.relocations: Relocations = []
        for region in what["memory"]:
            base, size = ctypes.c_uint64(), region["size"]
            gpu.call("cuMemAlloc_v2", ctypes.byref(base), ctypes.c_size_t(size + 2 * _PHASE))
            self.relocations.append((region["address"], size, base.value + (region["address"] - base.value) % _PHASE))
        self.contents = [moved(unpacked(region["data"]), self.relocations) for region in what["memory"]]
        self.after = [unpacked(region["after"]) for region in what["memory"]]
        self.pointers = [pointers(data, self.relocations) for data in self.after]
        streams = {launch["stream"]: gpu.stream(True) for launch in what["launches"]}
        self.launches: list[tuple[Any, ...]] = []
        for launch in what["launches"]:
            function = self._function(launch, (first, second) if delayed else None)
            parameters = [moved(unpacked(data), self.relocations) for data in launch["parameters"]]
            self.launches.append((function, launch, parameters, streams[launch["stream"]]))
        self.streams = list(streams.values())
        if filled:
            fill = gpu.function(gpu.load(FILL), "fill", FILLED_BYTES, 1)
            self.streams.append(gpu.stream(False))
            self.launches.insert(0, (fill, FILLING, [FILLED_BYTES.to_bytes(4, "little")], self.streams[-1]))

    def _function(self, launch: dict[str, Any], delays: tuple[int, int] | None) -> ctypes.c_void_p:
        """Load a kernel, and say which sides of the hazard are delayed where it has them."""
        gpu, extents = self.gpu, launch["cluster"]
        module = gpu.load(launch["ptx"] if delays is None else launch["delayed_ptx"])
        if delays is not None and launch["sides"]:
            variable, size = ctypes.c_uint64(), ctypes.c_size_t()
            name = self.what["variable"].encode()
            gpu.call("cuModuleGetGlobal_v2", ctypes.byref(variable), ctypes.byref(size), module, name)
            data = b"".join((DELAY_NS * delays[side]).to_bytes(4, "little") for side in launch["sides"])
            gpu.call("cuMemcpyHtoD_v2", variable, data, ctypes.c_size_t(len(data)))
        return gpu.function(module, launch["kernel"], launch["smem_bytes"], extents[0] * extents[1] * extents[2])

    def run(self) -> list[bytes] | None:
        """Launch, and return the contents of each range; None if the launch does not end."""
        gpu, left = self.gpu, []
        for (_, size, now), data in zip(self.relocations, self.contents, strict=True):
            gpu.call("cuMemcpyHtoD_v2", ctypes.c_uint64(now), data, ctypes.c_size_t(size))
        gpu.call("cuCtxSynchronize")
        for launch in self.launches:
            gpu.launch(*launch)
        if not gpu.has_ended(self.streams, HANG_S):
            return None
        for number, (_, size, now) in enumerate(self.relocations):
            block, expected = ctypes.create_string_buffer(size), self.after[number]
            gpu.call("cuMemcpyDtoH_v2", block, ctypes.c_uint64(now), ctypes.c_size_t(size))
            found = bytearray(block.raw)
            alike = [(at, at + 8) for at, word in self.pointers[number].items() if found[at : at + 8] == word]
            for start, end in (*alike, *self.what["memory"][number]["undetermined"]):
                found[start:end] = expected[start:end]
            left.append(bytes(found))
        return left


def child(what: dict[str, Any], way: str, launches: int) -> int:
    """Launch in one way, and print a line of JSON for each outcome, as they come; returns the exit status."""
    prepared, seen = PreparedLaunches(Gpu(), what, way), set()
    after = prepared.after
    orders = [[unpacked(other) for other in region["others"]] for region in what["memory"]]
    last = time.monotonic() + LONGEST_S
    for number in range(launches):
        if number and time.monotonic() > last:
            break
        left = prepared.run()
        if left is None:
            return HUNG
        digest = hashlib.blake2b(b"".join(left), digest_size=16).hexdigest()
        line: dict[str, Any] = {"digest": digest}
        if digest not in seen:
            seen.add(digest)
            if digest != what["expected"]:
                line["what"] = described(what, left, after)
                line["is_other_order"] = is_other_order(left, after, orders)
        print(json.dumps(line), flush=True)
    return 0


def differing(data: bytes, expected: bytes) -> list[int]:
    """Return where bytes differ; long stretches that are alike cost little.

    Examples
    --------
    >>> differing(bytes(9000), bytes(8191) + b"ab" + bytes(807))
    [8191, 8192]
    """
    found = []
    for start in range(0, len(data), _STRETCH):
        a, b = data[start : start + _STRETCH], expected[start : start + _STRETCH]
        if a != b:
            found += [start + n for n, (x, y) in enumerate(zip(a, b, strict=True)) if x != y]
    return found


def described(what: dict[str, Any], left: list[bytes], after: list[bytes]) -> str:
    """Describe the first bytes of memory that differ from the simulator's."""
    for region, data, expected in zip(what["memory"], left, after, strict=True):
        where = differing(data, expected)
        if where:
            at = where[0]
            word = slice(at // 4 * 4, at // 4 * 4 + 4)
            values = f"{data[word].hex()}, not {expected[word].hex()}"
            return f"{len(where)} bytes, first at {at} of {region['name']}: {values}"
    return "nothing"


def is_other_order(left: list[bytes], after: list[bytes], others: list[list[bytes]]) -> bool:
    """Return whether each byte that is another than the simulator left is as a schedule of another order leaves it.

    Parameters
    ----------
    left, after : list of bytes
        Of each range, what the launch left, and what the simulator did.
    others : list of list of bytes
        Of each range, for each schedule the exclusive or of what it leaves and what the simulator left.

    Examples
    --------
    >>> after, others = [bytes([1, 6, 1])], [[bytes([0, 3, 7])]]
    >>> is_other_order([bytes([1, 5, 1])], after, others), is_other_order([bytes([2, 5, 1])], after, others)
    (True, False)
    """
    return all(
        any(other[n] == data[n] ^ expected[n] for other in alternatives)
        for data, expected, alternatives in zip(left, after, others, strict=True)
        for n in differing(data, expected)
    )


def run(script: str, way: str, launches: int) -> tuple[list[dict[str, Any]], str]:
    """Launch in one way in a process of its own; returns a line for each launch, and how it ended if it failed."""
    command = [sys.executable, script, "--child", way, str(launches)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    ended = ""
    try:
        out, errors = process.communicate(timeout=TIMEOUT_S)
        if process.returncode == HUNG:
            ended = f"hang: no end after {HANG_S:.0f} s"
        elif process.returncode:
            ended = "error: " + (errors.strip().splitlines() or ["no message"])[-1]
    except subprocess.TimeoutExpired:
        process.kill()
        out, _ = process.communicate()
        ended = f"error: the process did not end within {TIMEOUT_S:.0f} s"
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")], ended


def main(script: str, what: dict[str, Any]) -> int:
    """Launch in all ways, and say whether one ended with another result; the exit status is 1 if so."""
    if sys.argv[1:2] == ["--child"]:
        status = child(what, sys.argv[2], int(sys.argv[3]))
        os._exit(status)  # the driver would wait for a launch that hangs
    launches = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    print(what["hazard"])
    counts: dict[str, Counter[str]] = {}
    ends: dict[str, str] = {}
    told: dict[str, dict[str, Any]] = {}
    for way in what["ways"]:
        start = time.time()
        lines, ends[way] = run(script, way, launches)
        counts[way] = Counter(line["digest"] for line in lines)
        new = {line["digest"]: line for line in lines if "what" in line}
        told |= new
        simulated = counts[way][what["expected"]]
        reordered = sum(counts[way][digest] for digest, line in told.items() if line["is_other_order"])
        said = f"{len(lines)} launches, {simulated} as simulated, {reordered} as in another order"
        first = [line["what"] for line in new.values()][:1]
        ended = [ends[way]] if ends[way] else []
        print(f"  {way}: {'; '.join([said, *first, *ended])} ({time.time() - start:.1f} s)", flush=True)
    found = verdict(what["expected"], counts, ends, told)
    print(f"VERDICT {what['name']}: {'; '.join(found) if found else 'nothing differs'}")
    return int(bool(found))


def verdict(
    expected: str | None, counts: dict[str, Counter[str]], ends: dict[str, str], told: dict[str, dict[str, Any]]
) -> list[str]:
    """Tell the results that differ.

    Values that are the same in all launches, and neither the simulator's nor those of another order, show no hazard (a
    GPU rounds sums of MMAs in its own way, say): that is said, and other launches are compared with them.

    Parameters
    ----------
    expected : str or None
        The digest of what the simulator left; None if it raised.
    counts : dict of str to Counter
        Of each way, how many launches came to each digest.
    ends : dict of str to str
        Of each way, how it failed; empty if it did not.
    told : dict of str to dict
        Of each digest that is another than expected, what is other, and whether that is as in another order.

    Examples
    --------
    >>> told = {"b": {"what": "4 bytes", "is_other_order": True}, "c": {"what": "8 bytes", "is_other_order": False}}
    >>> ends = {"as it is": "", "delayed": "hang: no end after 3 s"}
    >>> verdict("a", {"as it is": Counter(a=5), "delayed": Counter(a=4, b=1)}, ends, told)
    ['delayed: values of another order', 'delayed: hang']
    >>> verdict("a", {"as it is": Counter(b=5)}, {}, told)
    ["always values of another order than the simulator's"]
    >>> verdict("a", {"as it is": Counter(c=5)}, {}, told)
    ["values differ from the simulator's in every launch, delayed or not: 8 bytes"]
    """
    together: Counter[str] = sum(counts.values(), Counter())
    reordered = {digest for digest in together if digest in told and told[digest]["is_other_order"]}
    found = []
    if together and reordered == set(together):
        found.append("always values of another order than the simulator's")
    else:
        usual = expected
        if usual not in together:
            usual = next((digest for digest, _ in together.most_common() if digest not in reordered), None)
            if usual is not None and expected is not None:
                found.append(
                    f"values differ from the simulator's in every launch, delayed or not: {told[usual]['what']}"
                )
        for way, count in counts.items():
            if reordered.intersection(count):
                found.append(f"{way}: values of another order")
            elif set(count) - {usual}:
                found.append(f"{way}: other values")
    return found + [f"{way}: {ended.partition(':')[0]}" for way, ended in ends.items() if ended]
