"""Records by CUPTI's activity API, through NVIDIA's package `cupti-python`.

CUPTI writes an external correlation id beside each CUDA call; each thread has a stack of such ids, one for each scope.
The kernel of a CUDA graph has the id of its graph node instead: callbacks record the scope of each node when the stream
is captured, and when instantiation clones the captured graph.

References
----------
CUPTI: `cuptiActivityPushExternalCorrelationId`, `CUpti_ActivityKernel10`, `CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED` and
`CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED`.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterable, Sequence
from typing import Any

from cutepy.extras import is_installed
from cutepy.profiling.recording import Record
from cutepy.profiling.sources import SourceError, check_driver

BUFFER_BYTES = 8 << 20
_FORCED = 1
"""Flag of a flush that returns partly filled buffers too."""


class _ThreadScopes(threading.local):
    def __init__(self) -> None:
        self.scopes: list[int] = []


class CuptiSource:
    """Records of CUPTI; one at a time in a process.

    Attributes
    ----------
    name : str
    notes : list of str
    """

    name = "cupti"

    def __init__(self) -> None:
        self.notes: list[str] = []
        self._thread = _ThreadScopes()
        self._cupti: Any = None
        self._subscriber: Any = None
        self._kinds: list[Any] = []
        self._work: list[dict[str, Any]] = []
        self._scopes: dict[int, int] = {}
        self._launched: dict[int, int] = {}
        self._nodes: dict[int, int] = {}

    def start(self) -> None:
        """Begin to record.

        Raises
        ------
        SourceError
            If there is no driver, cupti-python or libcupti, or another profiler holds CUPTI.
        """
        self._cupti = cupti = load_cupti()
        kinds = cupti.ActivityKind
        self._kinds = [kinds.CONCURRENT_KERNEL, kinds.MEMCPY, kinds.MEMSET]
        # An external correlation id is written beside the record of a call, of either API.
        self._kinds += [kinds.RUNTIME, kinds.DRIVER, kinds.EXTERNAL_CORRELATION]
        self._external = cupti.ExternalCorrelationKind.CUSTOM2  # the others are torch's profiler's
        enabled = []
        try:
            cupti.activity_register_callbacks(lambda: (BUFFER_BYTES, 0), self._completed)
            for kind in self._kinds:
                cupti.activity_enable(kind)
                enabled.append(kind)
        except cupti.cuptiError as error:
            for kind in enabled:
                cupti.activity_disable(kind)
            raise SourceError(f"CUPTI must be free, got {error}; end the other profiler") from error
        self._subscribe()

    def _subscribe(self) -> None:
        """Subscribe to nodes of graphs. Beside another subscriber, graph kernels have the scope of their replay."""
        cupti = self._cupti
        try:
            self._subscriber = cupti.subscribe(self._noted, None)
            for event in (cupti.CallbackIdResource.GRAPHNODE_CREATED, cupti.CallbackIdResource.GRAPHNODE_CLONED):
                cupti.enable_callback(1, self._subscriber, cupti.CallbackDomain.RESOURCE, event)
        except cupti.cuptiError as error:
            self.notes.append(
                f"kernels of CUDA graphs are in the scope of their replay: CUPTI's callbacks are taken ({error})"
            )

    def push(self, scope: int) -> None:
        """Attribute the calling thread's launches to a scope until `pop`."""
        self._thread.scopes.append(scope)
        self._cupti.activity_push_external_correlation_id(self._external, scope)

    def pop(self) -> None:
        """Undo the calling thread's last `push`."""
        if self._thread.scopes:
            self._thread.scopes.pop()
            self._cupti.activity_pop_external_correlation_id(self._external)

    def stop(self) -> Sequence[Record]:
        """Wait for the device, and return all records."""
        cupti = self._cupti
        synchronise()
        cupti.activity_flush_all(_FORCED)
        for kind in self._kinds:
            cupti.activity_disable(kind)
        if self._subscriber is not None:
            cupti.unsubscribe(self._subscriber)
        return [self._record(each) for each in self._work]

    def _record(self, work: dict[str, Any]) -> Record:
        correlation, node = work.pop("correlation"), work.pop("node")
        scope = self._nodes.get(node, self._scopes.get(correlation))
        return Record(
            **work,
            scope=scope,
            graph_launch=correlation if node else None,
            launched_ns=self._launched.get(correlation),
        )

    def _noted(self, _: Any, domain: int, event: int, data: Any) -> None:  # noqa: ANN401
        """Record the scope of a graph node: the thread's for a captured node, the original's for a clone."""
        cupti = self._cupti
        told = cupti.ResourceData.from_ptr(data) if isinstance(data, int) else data
        graph = cupti.GraphData.from_ptr(told.resource_descriptor, readonly=True)
        node = cupti.get_graph_node_id(graph.node)
        if event == cupti.CallbackIdResource.GRAPHNODE_CLONED:
            origin = self._nodes.get(cupti.get_graph_node_id(graph.original_node))
            if origin is None:  # the clone, which was made before, is of no scope either
                self._nodes.pop(node, None)
            else:
                self._nodes[node] = origin
        elif self._thread.scopes:
            self._nodes[node] = self._thread.scopes[-1]

    def _completed(self, activities: Iterable[Any]) -> None:
        """Copy the records of a completed buffer, which CUPTI reclaims after the callback."""
        kinds = self._cupti.ActivityKind
        calls, copy, fill = (kinds.RUNTIME, kinds.DRIVER), kinds.MEMCPY, kinds.MEMSET
        for each in activities:
            kind = each.kind
            if kind in calls:
                self._launched[each.correlation_id] = each.start
            elif kind == kinds.EXTERNAL_CORRELATION:
                if each.external_kind == self._external:
                    self._scopes[each.correlation_id] = each.external_id
            elif kind == kinds.CONCURRENT_KERNEL:
                self._work.append(_of_kernel(each))
            elif kind in (copy, fill):
                self._work.append(_of_copy(each, self._cupti) if kind == copy else _of_fill(each))


def load_cupti() -> Any:  # noqa: ANN401
    """Import cupti-python's bindings.

    Raises
    ------
    SourceError
        If they, the driver, or CUPTI's library are missing.
    """
    check_driver()
    if not is_installed("cupti"):
        raise SourceError("cupti-python is not installed: pip install 'cutepy[profile]'")
    try:
        from cupti import cupti

        cupti.get_timestamp()
    except ModuleNotFoundError as error:
        raise SourceError(
            f"cupti-python needs {error.name}, which is not installed: pip install {error.name}"
        ) from error
    except Exception as error:  # a library that is missing is a RuntimeError, or of a class of its own
        raise SourceError(
            f"cupti-python can't load CUPTI's library ({error}): pip install nvidia-cuda-cupti, or add its folder to "
            "LD_LIBRARY_PATH"
        ) from error
    return cupti


def synchronise() -> None:
    """Wait for all work of the calling thread's context; do nothing where there is none."""
    ctypes.CDLL("libcuda.so.1").cuCtxSynchronize()


def _of_kernel(each: Any) -> dict[str, Any]:  # noqa: ANN401
    return {
        "name": each.name,
        "start_ns": each.start,
        "end_ns": each.end,
        "device": each.device_id,
        "stream": each.stream_id,
        "correlation": each.correlation_id,
        "node": each.graph_node_id,
        "grid": (each.grid_x, each.grid_y, each.grid_z),
        "block": (each.block_x, each.block_y, each.block_z),
        "cluster": (each.cluster_x or 1, each.cluster_y or 1, each.cluster_z or 1),
        "registers": each.registers_per_thread,
        "smem_bytes": each.static_shared_memory + each.dynamic_shared_memory,
    }


def _of_copy(each: Any, cupti: Any) -> dict[str, Any]:  # noqa: ANN401
    return _of_bytes(each, "copy", f"copy {cupti.ActivityMemcpyKind(each.copy_kind).name}")


def _of_fill(each: Any) -> dict[str, Any]:  # noqa: ANN401
    return _of_bytes(each, "fill", "fill")


def _of_bytes(each: Any, kind: str, name: str) -> dict[str, Any]:  # noqa: ANN401
    return {
        "name": name,
        "kind": kind,
        "start_ns": each.start,
        "end_ns": each.end,
        "device": each.device_id,
        "stream": each.stream_id,
        "correlation": each.correlation_id,
        "node": each.graph_node_id,
        "bytes": each.bytes,
    }
