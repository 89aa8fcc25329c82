"""The source of CUPTI's records, with a stand-in for cupti-python that calls back as it does."""

import enum
import json
import sys
import types
from pathlib import Path
from types import SimpleNamespace

import pytest

import cutepy
from cutepy.profiling import SourceError, cupti_source, sources
from cutepy.profiling.cupti_source import CuptiSource
from cutepy.profiling.session import started_source
from tests.messages import refuses

NAMES = "CONCURRENT_KERNEL MEMCPY MEMSET RUNTIME DRIVER EXTERNAL_CORRELATION"


class CuptiError(Exception):
    pass


class Cupti(types.ModuleType):
    """Stand-in for `cupti.cupti`: one stack of external ids, launches that are recorded while their kind is enabled."""

    ActivityKind = enum.IntEnum("ActivityKind", NAMES)
    ExternalCorrelationKind = enum.IntEnum("ExternalCorrelationKind", "CUSTOM0 CUSTOM2")
    CallbackIdResource = enum.IntEnum("CallbackIdResource", "GRAPHNODE_CREATED GRAPHNODE_CLONED")
    CallbackDomain = enum.IntEnum("CallbackDomain", "RESOURCE")
    ActivityMemcpyKind = enum.IntEnum("ActivityMemcpyKind", "HTOD DTOH HTOA ATOH ATOA ATOD DTOA DTOD")
    cuptiError = CuptiError
    GraphData = SimpleNamespace(from_ptr=lambda data, readonly: data)

    def __init__(self, *, taken=()):
        super().__init__("cupti.cupti")
        self.taken, self.enabled, self.ids = set(taken), set(), []
        self.buffer, self.count, self.subscriber = [], 0, None

    def _take(self, name):
        if name in self.taken:
            raise CuptiError(f"{name} is taken")

    def get_timestamp(self):
        return 0

    def activity_register_callbacks(self, requested, completed):
        self._take("callbacks")
        assert requested()[0] > 0
        self.completed = completed

    def activity_enable(self, kind):
        self._take(kind.name)
        self.enabled.add(kind)

    def activity_disable(self, kind):
        self.enabled.remove(kind)

    def activity_push_external_correlation_id(self, kind, number):
        self.ids.append(number)

    def activity_pop_external_correlation_id(self, kind):
        return self.ids.pop()

    def activity_flush_all(self, flag):
        self.completed(self.buffer)
        self.buffer = []

    def subscribe(self, callback, userdata):
        self._take("subscribe")
        self.subscriber = callback
        return 1

    def enable_callback(self, enable, subscriber, domain, event):
        pass

    def unsubscribe(self, subscriber):
        self.subscriber = None

    def get_graph_node_id(self, node):
        return node

    # What a program does.

    def launch(self, *nodes, name="k"):
        """Launch a kernel, or a graph of nodes."""
        self.count += 1
        kinds, correlation, start = self.ActivityKind, self.count, 1000 * self.count
        self.buffer.append(SimpleNamespace(kind=kinds.RUNTIME, correlation_id=correlation, start=start - 500))
        if self.ids:
            external = {"external_kind": self.ExternalCorrelationKind.CUSTOM2, "external_id": self.ids[-1]}
            self.buffer.append(SimpleNamespace(kind=kinds.EXTERNAL_CORRELATION, correlation_id=correlation, **external))
        for node in nodes or (0,):
            shape = {f"{what}_{axis}": 1 for what in ("grid", "block") for axis in "xyz"}
            shape |= {"cluster_x": 2, "cluster_y": 0, "cluster_z": 0, "registers_per_thread": 32}
            shape |= {"static_shared_memory": 16, "dynamic_shared_memory": 1024}
            where = {"device_id": 0, "stream_id": 7, "graph_node_id": node, "correlation_id": correlation}
            self.buffer.append(
                SimpleNamespace(kind=kinds.CONCURRENT_KERNEL, name=name, start=start, end=start + 100, **shape, **where)
            )

    def copy(self, bytes_):
        self.count += 1
        where = {"device_id": 0, "stream_id": 7, "graph_node_id": 0, "correlation_id": self.count}
        times = {"start": 1000 * self.count, "end": 1000 * self.count + 100}
        kinds = {"kind": self.ActivityKind.MEMCPY, "copy_kind": self.ActivityMemcpyKind.HTOD}
        self.buffer.append(SimpleNamespace(bytes=bytes_, **where, **times, **kinds))

    def node(self, node, original=None):
        """Make a graph's node: by capturing a launch, or by instantiating a graph, which tells of whom then."""
        events = self.CallbackIdResource
        for event in (events.GRAPHNODE_CREATED, *[events.GRAPHNODE_CLONED] * (original is not None)):
            graph = SimpleNamespace(node=node, original_node=original)
            self.subscriber(None, self.CallbackDomain.RESOURCE, event, SimpleNamespace(resource_descriptor=graph))


def install(monkeypatch, cupti):
    package = types.ModuleType("cupti")
    package.cupti = cupti
    monkeypatch.setitem(sys.modules, "cupti", package)
    monkeypatch.setitem(sys.modules, "cupti.cupti", cupti)
    monkeypatch.setattr(cupti_source, "is_installed", lambda name: True)
    monkeypatch.setattr(cupti_source, "check_driver", lambda: None)
    monkeypatch.setattr(cupti_source, "synchronise", lambda: None)
    return cupti


def test_kernels_are_in_the_scope_of_their_external_id(monkeypatch):
    cupti = install(monkeypatch, Cupti())
    with cutepy.profile(source=CuptiSource()) as profile:
        cupti.launch(name="a")
        with cutepy.scope("outer"):
            with cutepy.scope("inner"):
                cupti.launch(name="b")
            cupti.launch(name="c")
            cupti.copy(64)
    recording = profile.recording
    found = [(each.name, recording.path(each.scope)) for each in recording.records]
    assert found == [("a", ()), ("b", ("outer", "inner")), ("c", ("outer",)), ("copy HTOD", ())]
    first = recording.records[0]
    assert (first.start_ns, first.end_ns, first.launched_ns, first.stream) == (1000, 1100, 500, 7)
    assert (first.cluster, first.registers, first.smem_bytes) == ((2, 1, 1), 32, 1040)
    assert (cupti.enabled, cupti.ids, cupti.subscriber) == (set(), [], None)


def test_kernels_of_a_graph_are_in_the_scope_of_their_capture(monkeypatch):
    cupti = install(monkeypatch, Cupti())
    with cutepy.profile(source=CuptiSource()) as profile:
        with cutepy.scope("captured", flops=10):
            cupti.node(1)
            with cutepy.scope("inner"):
                cupti.node(2)
        cupti.node(3)
        with cutepy.scope("instantiation"):
            for node in (1, 2, 3):
                cupti.node(node + 10, original=node)
        with cutepy.scope("replays"):
            cupti.launch(11, 12, 13)
            cupti.launch(11, 12, 13)
    root = profile.tree()
    assert (root["captured"].calls, root["captured"].launches, root["captured"].flops) == (2, 4, 20)
    assert root["captured"]["inner"].launches == 2
    assert root["replays"].launches == 2  # of the node that was captured in no scope


def test_activities_of_an_h200(monkeypatch):
    """A product and a Triton kernel in a scope, a graph captured in two others, and its replays in a fourth."""
    told = json.loads(Path(__file__).with_name("h200_activities.json").read_text())
    cupti = install(monkeypatch, Cupti())
    kinds = cupti.ActivityKind
    of = {"kernel": kinds.CONCURRENT_KERNEL, "copy": kinds.MEMCPY, "call": kinds.RUNTIME}
    of["external"] = kinds.EXTERNAL_CORRELATION
    nodes = [(node, original) for event, node, original in told["nodes"] if original or node < 2**33]
    with cutepy.profile(source=CuptiSource()) as profile:
        places = {7: "launches", 9: "relu", 10: "product", 11: "replays"}
        numbers = {}
        for place, (number, name) in enumerate(places.items()):
            numbers[number] = place
            with cutepy.scope(name):
                for node, original in nodes:
                    if original is None and {9: 0, 10: 1}.get(number) == node % 2**32:
                        cupti.node(node)
        for node, original in nodes:
            if original is not None:
                cupti.node(node, original)
        for each in told["activities"]:
            fields = dict(each)
            activity = SimpleNamespace(kind=of[fields.pop("of")], **fields)
            if activity.kind == kinds.EXTERNAL_CORRELATION:
                activity.external_kind = cupti.ExternalCorrelationKind.CUSTOM2
                activity.external_id = numbers[each["external_id"]]
            cupti.buffer.append(activity)
    root = profile.tree()
    shown = {
        "/".join(node.path): (node.calls, node.launches, node.time_ns) for node in root.walk() if node.kind == "scope"
    }
    assert shown.pop("")[1] == len(profile.recording.records)
    assert shown == {
        "launches": (1, 2, 25_888),
        "product": (2, 2, 48_289),
        "relu": (2, 2, 8256),
        "replays": (1, 0, 0),
    }
    assert {record.grid for record in profile.recording.records if record.name == "add_one"} == {(1024, 1, 1)}
    assert all(record.launched_ns < record.start_ns for record in profile.recording.records)


def test_without_callbacks_kernels_of_a_graph_are_in_the_scope_of_their_replay(monkeypatch):
    cupti = install(monkeypatch, Cupti(taken=["subscribe"]))
    with cutepy.profile(source=CuptiSource()) as profile, cutepy.scope("replays"):
        cupti.launch(11, 12)
    assert profile.tree()["replays"].launches == 2
    assert len(profile.recording.notes) == 1


@pytest.mark.parametrize("taken", ["callbacks", "MEMSET"])
def test_another_profiler_holds_cupti(taken, monkeypatch):
    cupti = install(monkeypatch, Cupti(taken=[taken]))
    with refuses(SourceError):
        CuptiSource().start()
    assert cupti.enabled == set()


def test_missing_parts_are_named(monkeypatch):
    install(monkeypatch, Cupti())
    monkeypatch.setattr(cupti_source, "is_installed", lambda name: False)
    with refuses(SourceError):
        CuptiSource().start()
    monkeypatch.setattr(cupti_source, "is_installed", lambda name: True)
    broken = Cupti()
    broken.get_timestamp = lambda: (_ for _ in ()).throw(RuntimeError("libcupti.so.13 not found"))
    install(monkeypatch, broken)
    with refuses(SourceError):
        CuptiSource().start()
    monkeypatch.setitem(sys.modules, "cupti", None)
    with pytest.raises(SourceError):
        CuptiSource().start()


def test_a_machine_without_a_driver(monkeypatch):
    def missing(name):
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(sources.ctypes, "CDLL", missing)
    source, reasons = started_source()
    assert source is None
    assert len(reasons) == 1
    with refuses(SourceError):
        sources.check_driver()
