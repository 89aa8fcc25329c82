"""Machines that run timed kernels: a GPU through CUDA's driver, or cutepy's simulator, which checks them."""

from __future__ import annotations

import ctypes
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from cutepy.runtime.launch_structures import (
    CLUSTER,
    COOPERATIVE,
    MAX_DYNAMIC_SMEM,
    NON_PORTABLE_CLUSTER,
    PROGRAMMATIC,
    LaunchAttribute,
    LaunchConfig,
)
from tests.time.ptx import RECORD_WORDS

_SM_COUNT = 16  # CUdevice_attribute
_BF16 = 9  # CUtensorMapDataType
_SWIZZLES = {"none": 0, "32": 1, "64": 2, "128": 3}  # CUtensorMapSwizzle
RECORDS_BYTES = 1 << 24
"""Memory that the records of launches have on a GPU."""


@dataclass(frozen=True)
class Figure:
    """Measured number.

    Attributes
    ----------
    value : float
    spread : float
        Half of the range of the middle half of repetitions, relative to the value.
    """

    value: float
    spread: float = 0.0

    def times(self, factor: float) -> Figure:
        """Return the figure in another unit."""
        return Figure(self.value * factor, self.spread)


def figure(samples: Iterable[float]) -> Figure:
    """Return the median of samples and their spread."""
    ordered = np.sort(np.array([*samples], np.float64))
    low, middle, high = np.percentile(ordered, [25, 50, 75])
    return Figure(float(middle), float((high - low) / 2 / abs(middle)) if middle else 0.0)


@dataclass(frozen=True)
class Launch:
    """Extents of a launch of a timed kernel, and its arguments after those that every kernel has."""

    grid: int = 1
    block: int = 32
    smem: int = 0
    cluster: int = 1
    cooperative: bool = False
    programmatic: bool = False
    extra: tuple[Any, ...] = ()

    @property
    def records_bytes(self) -> int:
        """Bytes of the records of its warps."""
        return self.grid * max(1, self.block // 32) * RECORD_WORDS * 8

    def check_records(self, first_bytes: int = 0) -> None:
        """Raise ValueError if records that begin so many bytes into their memory go beyond its end."""
        needed = first_bytes + self.records_bytes
        if needed > RECORDS_BYTES:
            raise ValueError(
                f"records of {self.grid} CTAs of {self.block} threads must end within {RECORDS_BYTES} bytes, "
                f"got {needed}; launch fewer CTAs, or keep fewer launches"
            )


class Records:
    """Records of the warps of a launch: (CTAs, warps, RECORD_WORDS) of 64 bits."""

    def __init__(self, words: np.ndarray, launch: Launch) -> None:
        self.words = words.reshape(launch.grid, -1, RECORD_WORDS).astype(np.int64)

    @property
    def cycles(self) -> np.ndarray:
        """From the first warp's start to the last warp's end, of each CTA."""
        return self.words[:, :, 1].max(1) - self.words[:, :, 0].min(1)

    @property
    def span_ns(self) -> int:
        """From the first CTA's start to the last CTA's end."""
        return int(self.words[:, :, 3].max() - self.words[:, :, 2].min())


class Machine:
    """Interface of a machine that runs timed kernels."""

    simulated = False
    repetitions = 7
    sms = 132

    def data(self) -> Any:
        """Return 64 KiB of random words, the same for each kernel."""
        if not hasattr(self, "_data"):
            self._data = self.upload(np.random.default_rng(0).integers(0, 2**32, 1 << 14, np.uint32))
        return self._data

    def upload(self, values: np.ndarray) -> Any:
        """Copy an array to new memory of the machine."""
        raise NotImplementedError

    def records(self, ptx: str, n: int, launch: Launch, data: Any = None) -> Records:
        """Launch a timed kernel, wait, and return the records of its warps."""
        raise NotImplementedError

    def cycles(self, ptx: str, n: int, launch: Launch, data: Any = None) -> float:
        """Launch once, and return a CTA's cycles: the median of CTAs."""
        return float(np.median(self.records(ptx, n, launch, data).cycles))

    def slope(
        self,
        ptx: str,
        counts: tuple[int, int],
        launch: Launch = Launch(),
        data: Any = None,
        before: Callable[[], None] = lambda: None,
        repetitions: int = 0,
    ) -> Figure:
        """Return the cycles that one more turn costs, by launches of two numbers of turns."""
        few, many = (1, 2) if self.simulated else counts
        samples = []
        for index in range((repetitions or self.repetitions) + 1):
            spans = []
            for turns in (few, many):
                before()
                spans.append(self.cycles(ptx, turns, launch, data))
            if index or self.simulated:  # the first launches load code and fill caches
                samples.append((spans[1] - spans[0]) / (many - few))
        return figure(samples)


class Simulated(Machine):
    """cutepy's simulator, whose times mean nothing: kernels end, and report no hazard."""

    simulated = True
    repetitions = 1
    sms = 2

    def __init__(self) -> None:
        self.launches = 0

    def upload(self, values: np.ndarray) -> Any:
        return values.copy()

    def zeros(self, nbytes: int) -> Any:
        return np.zeros(nbytes, np.uint8)

    def address(self, buffer: Any) -> np.uint64:
        """Return the address of memory."""
        return np.uint64(buffer.ctypes.data)

    def clear(self, buffer: Any) -> None:
        buffer[...] = 0

    def flush(self) -> None:
        """Evict nothing."""

    def download(self, buffer: Any) -> np.ndarray:
        return buffer

    def prepare(self, texts: Iterable[str]) -> None:
        """Compile nothing."""

    def records(self, ptx: str, n: int, launch: Launch, data: Any = None) -> Records:
        import cutepy

        launch.check_records()
        out = np.zeros(launch.records_bytes // 8, np.uint64)
        data = self.data() if data is None else data
        extra = [item for item in launch.extra if not isinstance(item, bytes)]
        cutepy.load_ptx(ptx).launch(
            "timed", launch.grid, launch.block, (out, data, n, *launch.extra), cluster=launch.cluster,
            smem=launch.smem, cooperative=launch.cooperative, programmatic=launch.programmatic,
            known=[data, *(item for item in extra if isinstance(item, np.ndarray))],
        )  # fmt: skip
        self.launches += 1
        return Records(out, launch)

    def seconds(self, ptx: str, n: int, launch: Launch, data: Any = None) -> float:
        self.records(ptx, n, launch, data)
        return 1e-3 * n * launch.grid

    def graph_seconds(self, ptx: str, n: int, launch: Launch, count: int, cold: bool = False) -> float:
        return self.turns_seconds([(ptx, launch)], n, count)

    def turns_seconds(
        self,
        kernels: Sequence[tuple[str, Launch]],
        n: int,
        count: int,
        in_graph: bool = True,
        data: Any = None,
        cold: bool = False,
    ) -> float:
        for ptx, launch in kernels:
            self.records(ptx, n, launch, data)
        return 1e-6 * count

    def sequence(
        self,
        ptx: str,
        n: int,
        launch: Launch,
        count: int,
        before: str | None = None,
        data: Any = None,
        cold: bool = False,
    ) -> list[Records]:
        if before is not None:
            self.records(before, n, Launch())
        return [self.records(ptx, n, launch, data) for _ in range(count)]

    def stream_seconds(self, ptx: str, n: int, launch: Launch, count: int) -> float:
        return self.graph_seconds(ptx, n, launch, count)

    def durations(self, ptx: str, n: int, launch: Launch, count: int) -> list[float]:
        return [1e9 * self.graph_seconds(ptx, n, launch, 1) for _ in range(count)]

    def tensor_map(
        self, buffer: Any, rows: int, columns: int, box: tuple[int, int], swizzle: str, padding: int = 0
    ) -> bytes:
        """Return a tensor map of a bf16 matrix, with so many bytes after each row; the box is (columns, rows)."""
        from cutepy.layouts.sm90 import TensorMap
        from cutepy.runtime.tensor_maps import to_bytes

        name = "INTER" if swizzle == "none" else f"SW{swizzle}"
        return to_bytes(
            TensorMap(
                "bf16", (columns, rows), (2 * columns + padding,), box, global_address=buffer.ctypes.data, swizzle=name
            )
        )


class Buffer:
    """Memory of a GPU."""

    def __init__(self, gpu: Gpu, nbytes: int) -> None:
        self.gpu, self.nbytes, self.address = gpu, nbytes, ctypes.c_uint64()
        gpu.call("cuMemAlloc_v2", ctypes.byref(self.address), ctypes.c_size_t(nbytes))

    def __del__(self) -> None:
        self.gpu.cuda.cuMemFree_v2(self.address)


class Gpu(Machine):
    """The first GPU, through CUDA's driver."""

    def __init__(self) -> None:
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        self.device, context = ctypes.c_int32(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(self.device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self.device)
        self.call("cuCtxSetCurrent", context)
        count = ctypes.c_int32()
        self.call("cuDeviceGetAttribute", ctypes.byref(count), _SM_COUNT, self.device)
        self.sms = count.value
        self.stream, self.events = ctypes.c_void_p(), (ctypes.c_void_p(), ctypes.c_void_p())
        self.call("cuStreamCreate", ctypes.byref(self.stream), 1)
        for event in self.events:
            self.call("cuEventCreate", ctypes.byref(event), 0)
        self._images: dict[str, bytes] = {}
        self._functions: dict[str, ctypes.c_void_p] = {}
        self._out = Buffer(self, RECORDS_BYTES)

    @property
    def name(self) -> str:
        """The GPU's name."""
        text = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", text, 256, self.device)
        return text.value.decode()

    def call(self, name: str, *arguments: Any) -> None:
        """Call the driver, and raise what it refuses."""
        if code := getattr(self.cuda, name)(*arguments):
            text = ctypes.c_char_p()
            self.cuda.cuGetErrorString(code, ctypes.byref(text))
            raise RuntimeError(f"{name}: {(text.value or b'').decode() or code}")

    def upload(self, values: np.ndarray) -> Buffer:
        values = np.ascontiguousarray(values)
        buffer = Buffer(self, values.nbytes)
        source = ctypes.c_void_p(values.ctypes.data)
        self.call("cuMemcpyHtoD_v2", buffer.address, source, ctypes.c_size_t(values.nbytes))
        return buffer

    def zeros(self, nbytes: int) -> Buffer:
        buffer = Buffer(self, nbytes)
        self.clear(buffer)
        return buffer

    def address(self, buffer: Buffer) -> np.uint64:
        """Return the address of memory."""
        return np.uint64(buffer.address.value)

    def clear(self, buffer: Buffer) -> None:
        self.call("cuMemsetD8_v2", buffer.address, 0, ctypes.c_size_t(buffer.nbytes))
        self.call("cuCtxSynchronize")

    def download(self, buffer: Buffer) -> np.ndarray:
        """Return the bytes of a buffer."""
        values = np.zeros(buffer.nbytes, np.uint8)
        self.call("cuStreamSynchronize", self.stream)
        target = ctypes.c_void_p(values.ctypes.data)
        self.call("cuMemcpyDtoH_v2", target, buffer.address, ctypes.c_size_t(buffer.nbytes))
        return values

    @cached_property
    def _flushed(self) -> Buffer:
        return Buffer(self, 512 << 20)

    def flush(self) -> None:
        """Evict from L2 what was there."""
        self.clear(self._flushed)

    def prepare(self, texts: Iterable[str]) -> None:
        """Assemble kernels, in parallel."""
        lacking = [text for text in dict.fromkeys(texts) if text not in self._images]
        tool = _ptxas()
        if tool is None:  # then the driver compiles, one kernel after the other
            return
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            self._images |= zip(lacking, pool.map(partial(_assembled, tool), lacking), strict=True)

    def function(self, ptx: str, launch: Launch) -> ctypes.c_void_p:
        """Return a loaded kernel."""
        if ptx not in self._functions:
            self.prepare([ptx])
            image, module, function = self._images.get(ptx, ptx.encode() + b"\0"), ctypes.c_void_p(), ctypes.c_void_p()
            self.call("cuModuleLoadData", ctypes.byref(module), image)
            self.call("cuModuleGetFunction", ctypes.byref(function), module, b"timed")
            self._functions[ptx] = function
        function = self._functions[ptx]
        if launch.smem > 48 << 10:
            self.call("cuFuncSetAttribute", function, MAX_DYNAMIC_SMEM, launch.smem)
        if launch.cluster > 8:
            self.call("cuFuncSetAttribute", function, NON_PORTABLE_CLUSTER, 1)
        return function

    def start(self, ptx: str, n: int, launch: Launch, data: Buffer | None = None, out_bytes: int = 0) -> None:
        """Launch without waiting; its records begin so many bytes after those of other launches."""
        launch.check_records(out_bytes)
        function = self.function(ptx, launch)
        attributes, count = (LaunchAttribute * 3)(), 0
        if launch.cluster > 1:
            attributes[count].identity = CLUSTER
            attributes[count].value[0:3] = (launch.cluster, 1, 1)
            count += 1
        for asked, identity in ((launch.cooperative, COOPERATIVE), (launch.programmatic, PROGRAMMATIC)):
            if asked:
                attributes[count].identity, attributes[count].value[0] = identity, 1
                count += 1
        extents = (ctypes.c_uint32 * 3)(launch.grid, 1, 1), (ctypes.c_uint32 * 3)(launch.block, 1, 1)
        config = LaunchConfig(*extents, launch.smem, self.stream, attributes, count)
        out = ctypes.c_uint64(self._out.address.value + out_bytes)
        values = [out, (data or self.data()).address, ctypes.c_uint32(n), *map(_argument, launch.extra)]
        table = (ctypes.c_void_p * len(values))(*map(_address, values))
        self.call("cuLaunchKernelEx", ctypes.byref(config), function, table, None)

    def records(self, ptx: str, n: int, launch: Launch, data: Buffer | None = None) -> Records:
        self.start(ptx, n, launch, data)
        return self.left(launch)

    def left(self, launch: Launch, out_bytes: int = 0) -> Records:
        """Wait for a launch, and return the records of its warps."""
        words = np.zeros(launch.records_bytes // 8, np.uint64)
        self.call("cuStreamSynchronize", self.stream)
        source = ctypes.c_uint64(self._out.address.value + out_bytes)
        self.call("cuMemcpyDtoH_v2", ctypes.c_void_p(words.ctypes.data), source, ctypes.c_size_t(words.nbytes))
        return Records(words, launch)

    def _elapsed(self, work: Callable[[], None]) -> float:
        self.call("cuEventRecord", self.events[0], self.stream)
        work()
        self.call("cuEventRecord", self.events[1], self.stream)
        self.call("cuEventSynchronize", self.events[1])
        milliseconds = ctypes.c_float()
        name = "cuEventElapsedTime_v2" if hasattr(self.cuda, "cuEventElapsedTime_v2") else "cuEventElapsedTime"
        self.call(name, ctypes.byref(milliseconds), *self.events)
        return milliseconds.value * 1e-3

    def seconds(self, ptx: str, n: int, launch: Launch, data: Buffer | None = None) -> float:
        """Launch, and return its time by events."""
        self.function(ptx, launch)
        return self._elapsed(lambda: self.start(ptx, n, launch, data))

    def stream_seconds(self, ptx: str, n: int, launch: Launch, count: int) -> float:
        """Return the time of so many launches in a stream."""
        self.start(ptx, n, launch)
        return self._elapsed(lambda: [self.start(ptx, n, launch) for _ in range(count)] and None)

    def durations(self, ptx: str, n: int, launch: Launch, count: int) -> list[float]:
        """Return the ns of so many launches in a stream, as CUPTI counts them; none where it cannot be had."""
        from cutepy.profiling import profile

        self.start(ptx, n, launch)
        self.call("cuStreamSynchronize", self.stream)
        with profile() as found:
            for _ in range(count):
                self.start(ptx, n, launch)
            self.call("cuStreamSynchronize", self.stream)
        return [float(record.duration_ns) for record in found.recording.records if record.kind == "kernel"]

    def _captured(
        self,
        kernels: Sequence[tuple[str, Launch]],
        n: int,
        count: int,
        out_stride: int = 0,
        data: Buffer | None = None,
    ) -> ctypes.c_void_p:
        for ptx, launch in kernels:
            self.function(ptx, launch)
        self.data()
        graph, instance = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuStreamBeginCapture_v2", self.stream, 2)
        for index in range(count):
            for ptx, launch in kernels:
                self.start(ptx, n, launch, data, index * out_stride)
        self.call("cuStreamEndCapture", self.stream, ctypes.byref(graph))
        self.call("cuGraphInstantiateWithFlags", ctypes.byref(instance), graph, ctypes.c_ulonglong(0))
        return instance

    def graph_seconds(self, ptx: str, n: int, launch: Launch, count: int, cold: bool = False) -> float:
        """Return the time of a graph of so many launches, one after the other: the median of five replays.

        If `cold`, L2 has lost the launches' parameters before each.
        """
        return self.turns_seconds([(ptx, launch)], n, count, cold=cold)

    def turns_seconds(
        self,
        kernels: Sequence[tuple[str, Launch]],
        n: int,
        count: int,
        in_graph: bool = True,
        data: Buffer | None = None,
        cold: bool = False,
    ) -> float:
        """Return the time of so many turns of kernels, of a graph or launched in a stream; the median of five.

        The stream's launches wait for the first kernel of the first turn, which runs 50 times as long, so that the
        host is ahead of the GPU.
        """
        if not in_graph:
            for ptx, launch in kernels:
                self.function(ptx, launch)

            def launched() -> None:
                self.start(kernels[0][0], 50 * n * count, kernels[0][1], data)
                self.call("cuEventRecord", self.events[0], self.stream)
                for _ in range(count):
                    for ptx, launch in kernels:
                        self.start(ptx, n, launch, data)

            return statistics.median([self._elapsed(launched) for _ in range(6)][1:])
        instance = self._captured(kernels, n, count, 0, data)
        times = []
        for _ in range(6):
            if cold:
                self.flush()
            times.append(self._elapsed(lambda: self.call("cuGraphLaunch", instance, self.stream)))
        self.call("cuGraphExecDestroy", instance)
        return statistics.median(times[1:])

    def sequence(
        self,
        ptx: str,
        n: int,
        launch: Launch,
        count: int,
        before: str | None = None,
        data: Buffer | None = None,
        cold: bool = False,
    ) -> list[Records]:
        """Return the records of launches that follow each other in a graph, or another kernel each.

        If `cold`, L2 has lost the launches' parameters.
        """
        stride = launch.records_bytes
        kernels = [(ptx, launch)] if before is None else [(before, Launch()), (ptx, launch)]  # the later one's stay
        instance = self._captured(kernels, n, count, stride, data)
        for _ in range(3):
            if cold:
                self.call("cuStreamSynchronize", self.stream)
                self.flush()
            self.call("cuGraphLaunch", instance, self.stream)
        return [self.left(launch, index * stride) for index in range(count)]

    def tensor_map(
        self, buffer: Buffer, rows: int, columns: int, box: tuple[int, int], swizzle: str, padding: int = 0
    ) -> bytes:
        """Return a tensor map of a bf16 matrix, with so many bytes after each row; the box is (columns, rows)."""
        store = ctypes.create_string_buffer(256)
        target = -(-ctypes.addressof(store) // 128) * 128
        self.call(
            "cuTensorMapEncodeTiled", ctypes.c_void_p(target), _BF16, 2, buffer.address,
            (ctypes.c_uint64 * 2)(columns, rows), (ctypes.c_uint64 * 1)(2 * columns + padding),
            (ctypes.c_uint32 * 2)(*box), (ctypes.c_uint32 * 2)(1, 1), 0, _SWIZZLES[swizzle], 2, 0,
        )  # fmt: skip
        return ctypes.string_at(target, 128)

    def warm(self, seconds: float = 0.1) -> None:
        """Let the clocks rise."""
        from tests.time.instructions import chain

        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.records(chain("ffma", 4, 64), 20_000, Launch(self.sms, 1024))


def _argument(value: Any) -> Any:
    if isinstance(value, Buffer):
        return value.address
    if isinstance(value, bytes):
        store = ctypes.create_string_buffer(len(value) + 128)
        place = -(-ctypes.addressof(store) // 128) * 128
        ctypes.memmove(place, value, len(value))
        return store, place
    return ctypes.c_uint64(int(value)) if isinstance(value, np.uint64) else ctypes.c_uint32(value)


def _address(value: Any) -> int:
    return value[1] if isinstance(value, tuple) else ctypes.addressof(value)


@cache
def _ptxas() -> Path | None:
    from cutepy.binaries.ptxas import AssemblyError, find_ptxas

    try:
        return find_ptxas(Path("/usr/local/cuda"))[0]
    except AssemblyError:
        return None


def _assembled(tool: Path, ptx: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        source, image = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_text(ptx)
        command = [str(tool), "-arch=sm_90a", str(source), "-o", str(image)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        if done.returncode:
            raise RuntimeError(f"ptxas: {(done.stderr or done.stdout).strip()[:300]}")
        return image.read_bytes()


def quantiles(values: Sequence[float] | np.ndarray) -> dict[str, float]:
    """Return a distribution as a table."""
    return {f"p{q}": float(np.percentile(values, q)) for q in (0, 5, 25, 50, 75, 95, 100)}
