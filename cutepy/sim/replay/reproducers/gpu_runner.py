"""Launch a kernel many times on a GPU, as it is and with delays, and compare what it leaves: it needs a driver only.

`main` is given what to launch. It starts itself once for each way to launch, so that what hangs or faults costs that
way only, and prints a line for each and a verdict. What a launch leaves is compared with what the simulator left, and
with what it leaves where the sides of the hazard come in another order; bytes that registers decide which nothing has
written are not compared.
"""

from __future__ import annotations

import base64
import ctypes
import hashlib
import json
import subprocess
import sys
import time
import zlib
from collections import Counter
from typing import Any

WAYS = {
    "as it is": (0, 0, False, False),
    "the first side delayed": (1, 0, False, True),
    "the second side delayed": (0, 1, False, True),
    "shared memory is NaN before and after": (0, 0, True, False),
}
"""Whether each side is delayed, other CTAs fill shared memory with NaN meanwhile, and the PTX has delays."""

DELAY_NS, TIMEOUT_S = 300_000, 10.0
FILL = """.version 8.0
.target sm_90
.address_size 64
.extern .shared .align 16 .b8 smem[];
.visible .entry fill(.param .u32 bytes) {
    .reg .pred %p; .reg .b32 %r<6>;
    ld.param.u32 %r0, [bytes]; mov.u32 %r1, %tid.x; shl.b32 %r1, %r1, 2; mov.u32 %r2, smem; mov.u32 %r3, -1;
LOOP:
    add.u32 %r4, %r2, %r1; st.volatile.shared.u32 [%r4], %r3; add.u32 %r1, %r1, 4096; setp.lt.u32 %p, %r1, %r0;
    @%p bra LOOP;
    ret;
}
"""
FILLED_BYTES = 227 << 10
"""All that a CTA may have: one that fills comes to a multiprocessor before the kernel's, or once that has ended."""

FILLING = {"grid": [8448, 1, 1], "block": [1024, 1, 1], "cluster": [1, 1, 1], "smem_bytes": FILLED_BYTES}
_MAX_DYNAMIC_SMEM, _NON_PORTABLE_CLUSTER = 8, 14  # CUfunction_attribute
_COOPERATIVE, _CLUSTER = 2, 4  # CUlaunchAttributeID
_PHASE, _STRETCH = 1024, 4096


class Attribute(ctypes.Structure):
    """CUlaunchAttribute."""

    _fields_ = (("identity", ctypes.c_int32), ("pad", ctypes.c_int32), ("value", ctypes.c_uint32 * 16))


class Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("smem_bytes", ctypes.c_uint32),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("count", ctypes.c_uint32),
    )


class Gpu:
    """The first GPU, through the CUDA driver."""

    def __init__(self) -> None:
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        device, context = ctypes.c_int32(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)

    def call(self, name: str, *arguments: Any) -> None:  # noqa: ANN401
        """Call the driver, and raise what it refuses."""
        code = getattr(self.cuda, name)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self.cuda.cuGetErrorString(code, ctypes.byref(text))
            raise RuntimeError(f"{name}: {(text.value or b'').decode() or code}")

    def load(self, ptx: str) -> ctypes.c_void_p:
        """Compile a module."""
        log = ctypes.create_string_buffer(8192)
        options = (ctypes.c_int32 * 2)(5, 6)  # CU_JIT_ERROR_LOG_BUFFER, and its size
        values = (ctypes.c_void_p * 2)(ctypes.addressof(log), len(log))
        module = ctypes.c_void_p()
        code = self.cuda.cuModuleLoadDataEx(ctypes.byref(module), ptx.encode() + b"\0", 2, options, values)
        if code:
            raise RuntimeError(f"cuModuleLoadDataEx: {log.value.decode(errors='replace').strip() or code}")
        return module

    def function(self, module: ctypes.c_void_p, name: str, smem_bytes: int, cluster: int) -> ctypes.c_void_p:
        """Return a kernel that may have so much shared memory."""
        function = ctypes.c_void_p()
        self.call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
        if smem_bytes > 48 << 10:
            self.call("cuFuncSetAttribute", function, _MAX_DYNAMIC_SMEM, smem_bytes)
        if cluster > 8:
            self.call("cuFuncSetAttribute", function, _NON_PORTABLE_CLUSTER, 1)
        return function

    def stream(self, is_first: bool) -> ctypes.c_void_p:
        """Make a stream whose CTAs come first, or last."""
        least, greatest, stream = ctypes.c_int32(), ctypes.c_int32(), ctypes.c_void_p()
        self.call("cuCtxGetStreamPriorityRange", ctypes.byref(least), ctypes.byref(greatest))
        self.call("cuStreamCreateWithPriority", ctypes.byref(stream), 1, greatest if is_first else least)
        return stream

    def launch(
        self, function: ctypes.c_void_p, what: dict[str, Any], parameters: list[bytes], stream: ctypes.c_void_p
    ) -> None:
        """Launch a kernel, without waiting for it."""
        attributes, count = (Attribute * 2)(), 0
        if what["cluster"] != [1, 1, 1]:
            attributes[count].identity = _CLUSTER
            attributes[count].value[0:3] = what["cluster"]
            count += 1
        if what.get("cooperative"):
            attributes[count].identity, attributes[count].value[0] = _COOPERATIVE, 1
            count += 1
        extents = (ctypes.c_uint32 * 3)(*what["grid"]), (ctypes.c_uint32 * 3)(*what["block"])
        config = Config(*extents, what["smem_bytes"], stream, ctypes.addressof(attributes), count)
        aligned = [_aligned(data) for data in parameters]
        table = (ctypes.c_void_p * max(1, len(aligned)))(*(address for _, address in aligned))
        self.call("cuLaunchKernelEx", ctypes.byref(config), function, table, None)


def _aligned(data: bytes) -> tuple[Any, int]:
    """Copy a parameter to where tensor maps may be."""
    block = ctypes.create_string_buffer(len(data) + 128)
    address = -(-ctypes.addressof(block) // 128) * 128
    ctypes.memmove(address, data, len(data))
    return block, address


def moved(data: bytes, places: list[tuple[int, int, int]]) -> bytes:
    r"""Let words that point into memory as it was point to where it is now.

    Parameters
    ----------
    data : bytes
    places : list of (int, int, int)
        Of each range its address and bytes as they were, and its address now.

    Examples
    --------
    >>> moved((5000).to_bytes(8, "little") + bytes(8), [(4096, 1024, 100)])[:2]
    b'\xec\x03'
    """
    words = bytearray(data)
    for at in range(0, len(data) - 7, 8):
        word = int.from_bytes(words[at : at + 8], "little")
        for address, size, now in places:
            if address <= word < address + size:
                words[at : at + 8] = (word - address + now).to_bytes(8, "little")
    return bytes(words)


def unpacked(text: str) -> bytes:
    """Return what a script carries."""
    return zlib.decompress(base64.b85decode(text))


def child(what: dict[str, Any], way: str, launches: int) -> None:
    """Launch in one way, and print a line of JSON for each distinct outcome, as they come."""
    first, second, filled, delayed = WAYS[way]
    gpu = Gpu()
    module = gpu.load(what["delayed_ptx"] if delayed else what["ptx"])
    cluster = what["cluster"][0] * what["cluster"][1] * what["cluster"][2]
    function = gpu.function(module, what["kernel"], what["smem_bytes"], cluster)
    if delayed:
        variable, size = ctypes.c_uint64(), ctypes.c_size_t()
        gpu.call("cuModuleGetGlobal_v2", ctypes.byref(variable), ctypes.byref(size), module, what["variable"].encode())
        data = b"".join((DELAY_NS * on).to_bytes(4, "little") for on in (first, second))[: size.value]
        gpu.call("cuMemcpyHtoD_v2", variable, data, ctypes.c_size_t(len(data)))
    fill = gpu.function(gpu.load(FILL), "fill", FILLED_BYTES, 1) if filled else None
    own, others = gpu.stream(True), gpu.stream(False)
    places, contents = [], []
    for region in what["memory"]:
        base, size = ctypes.c_uint64(), region["size"]
        gpu.call("cuMemAlloc_v2", ctypes.byref(base), ctypes.c_size_t(size + 2 * _PHASE))
        places.append((region["address"], size, base.value + (region["address"] - base.value) % _PHASE))
        contents.append(unpacked(region["data"]))
    parameters = [moved(unpacked(data), places) for data in what["parameters"]]
    after = [unpacked(region["after"]) for region in what["memory"]]
    orders = [[unpacked(other) for other in region["others"]] for region in what["memory"]]
    seen: set[str] = set()
    for _ in range(launches):
        for (_, size, now), data in zip(places, contents, strict=True):
            gpu.call("cuMemcpyHtoD_v2", ctypes.c_uint64(now), data, ctypes.c_size_t(size))
        gpu.call("cuCtxSynchronize")
        if fill is not None:
            gpu.launch(fill, FILLING, [FILLED_BYTES.to_bytes(4, "little")], others)
        gpu.launch(function, what, parameters, own)
        gpu.call("cuCtxSynchronize")
        digest = hashlib.blake2b(digest_size=16)
        left = []
        for (_, size, now), region, expected in zip(places, what["memory"], after, strict=True):
            block = ctypes.create_string_buffer(size)
            gpu.call("cuMemcpyDtoH_v2", block, ctypes.c_uint64(now), ctypes.c_size_t(size))
            found = bytearray(block.raw)
            for start, end in region["undetermined"]:
                found[start:end] = expected[start:end]
            digest.update(found)
            left.append(bytes(found))
        line: dict[str, Any] = {"digest": digest.hexdigest()}
        if line["digest"] not in seen:
            seen.add(line["digest"])
            if line["digest"] != what["expected"]:
                line["what"] = described(what, left, after)
                line["is_other_order"] = is_other_order(left, after, orders)
        print(json.dumps(line), flush=True)


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
    """Say where memory is another than the simulator left it."""
    for region, data, expected in zip(what["memory"], left, after, strict=True):
        where = differing(data, expected)
        if where:
            at = where[0]
            word = slice(at // 4 * 4, at // 4 * 4 + 4)
            values = f"{data[word].hex()}, not {expected[word].hex()}"
            return f"{len(where)} bytes, first at {at} of {region['name']}: {values}"
    return "nothing"


def is_other_order(left: list[bytes], after: list[bytes], others: list[list[bytes]]) -> bool:
    """Tell whether each byte that is another than the simulator left is as a schedule of another order leaves it.

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
        if process.returncode:
            ended = "error: " + (errors.strip().splitlines() or ["no message"])[-1]
    except subprocess.TimeoutExpired:
        process.kill()
        out, _ = process.communicate()
        ended = f"hang: no end after {TIMEOUT_S:.0f} s"
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")], ended


def main(script: str, what: dict[str, Any]) -> int:
    """Launch in all ways, and say whether one came to something else; the exit status is 1 if so."""
    if sys.argv[1:2] == ["--child"]:
        child(what, sys.argv[2], int(sys.argv[3]))
        return 0
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
    """Say what came to something else.

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
    >>> ends = {"as it is": "", "delayed": "hang: no end after 10 s"}
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
