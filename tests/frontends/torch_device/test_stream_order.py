"""Scripts on the served device with the sanitizer: streams, events, and memory that nobody wrote."""

import contextlib

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

import cutepy  # noqa: E402
from cutepy.frontends import serve_cuda  # noqa: E402
from cutepy.frontends.backend import tell  # noqa: E402
from cutepy.frontends.ptx.modules import load_ptx  # noqa: E402
from cutepy.frontends.torch_device.storage import allocations  # noqa: E402
from cutepy.sim import HazardError  # noqa: E402
from cutepy.sim.machine.events import StreamEvent  # noqa: E402

pytestmark = pytest.mark.dsl

PTX = """.version 8.5
.target sm_90a
.address_size 64
.visible .entry add(.param .u64 p0, .param .u64 p1)
{
.reg .b32 %r<4>; .reg .b64 %rd<8>;
ld.param.u64 %rd1, [p0]; ld.param.u64 %rd2, [p1];
mov.u32 %r1, %tid.x; mul.wide.u32 %rd3, %r1, 4; add.u64 %rd4, %rd1, %rd3; add.u64 %rd5, %rd2, %rd3;
ld.global.u32 %r2, [%rd4]; add.u32 %r2, %r2, 1; st.global.u32 [%rd5], %r2;
ret;
}
"""


def kinds_of(script):
    """Run a script, which gets a kernel `y = x + 1` on the current stream; return the kinds of hazards in it."""
    module = load_ptx(PTX)

    def add(x, y):
        module.launch("add", 1, 64, [x, y], stream=torch.cuda.current_stream())

    with serve_cuda(sanitize=True) as run:
        script(add)
        found = [hazard.kind for hazard in run.hazards]
        run.restart()
    return found


def tensors():
    return torch.zeros(64, dtype=torch.int32, device="cuda"), torch.empty(64, dtype=torch.int32, device="cuda")


def in_one_stream(add):
    x, y = tensors()
    add(x, y)
    add(y, x)
    assert x.sum().item() == 128


def of_what_is_on_another_stream(add):
    x, y = tensors()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        add(x, y)


def whose_result_is_read_on_another_stream(add):
    x, y = tensors()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        add(x, y)
    y.sum()


def whose_result_a_kernel_reads_on_another_stream(add):
    x, y = tensors()
    z = torch.zeros_like(x)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        add(x, y)
    add(y, z)


def whose_memory_is_first_filled_on_another_stream(add):
    x, y = tensors()
    with torch.cuda.stream(torch.cuda.Stream()):
        y.fill_(7)
    add(y, x)


def whose_memory_two_streams_fill_before_any_launch(add):
    y = torch.empty(64, dtype=torch.int32, device="cuda")
    with torch.cuda.stream(torch.cuda.Stream()):
        y.fill_(7)
    y.fill_(8)


def with_all_that_waits(add):
    x, y = tensors()
    side, event = torch.cuda.Stream(), torch.cuda.Event()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        add(x, y)
        event.record()
    torch.cuda.current_stream().wait_event(event)
    assert y.sum().item() == 64


def with_a_host_that_waits(add):
    x, y = tensors()
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        add(x, y)
    side.synchronize()
    assert y.cpu().sum() == 64


def with_a_host_that_polls(add):
    x, y = tensors()
    torch.cuda.synchronize()
    side, event = torch.cuda.Stream(), torch.cuda.Event()
    with torch.cuda.stream(side):
        add(x, y)
        event.record()
    while not event.query():
        pass
    add(y, x)
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        add(y, x)
        while not torch.cuda.current_stream().query():
            pass
    assert x.sum().item() == 128


def with_a_host_that_asks_and_goes_on(add):
    x, y = tensors()
    torch.cuda.synchronize()
    event = torch.cuda.Event()
    with torch.cuda.stream(torch.cuda.Stream()):
        add(x, y)
        event.record()
        torch.cuda.current_stream().query()
    event.query()
    add(y, torch.zeros_like(x))


def with_an_event_that_is_recorded_again(add):
    """Whoever asked before asks anew, and whoever has waited knows of the first time alone."""
    x, y = tensors()
    torch.cuda.synchronize()
    side, event = torch.cuda.Stream(), torch.cuda.Event()
    for _ in range(2):
        with torch.cuda.stream(side):
            add(x, y)
            event.record()
        assert [event.query() for _ in range(3)] == [False, True, True]
    with torch.cuda.stream(side):
        event.record()
    side.synchronize()
    assert event.query()
    add(y, x)


def with_an_event_that_is_recorded_again_in_another_stream(add):
    x, y = tensors()
    torch.cuda.synchronize()
    side, event = torch.cuda.Stream(), torch.cuda.Event()
    with torch.cuda.stream(side):
        add(x, y)
        event.record()
    event.record(torch.cuda.Stream())
    torch.cuda.current_stream().wait_event(event)
    add(y, torch.zeros_like(x))


def whose_host_asked_before_an_event_was_recorded_again(add):
    x, y = tensors()
    torch.cuda.synchronize()
    event = torch.cuda.Event()
    with torch.cuda.stream(torch.cuda.Stream()):
        event.record()
        event.query()
        add(x, y)
        event.record()
    event.query()
    add(y, torch.zeros_like(x))


def with_a_number_that_the_host_waits_for(add):
    x, y = tensors()
    assert x.sum().item() == 0
    with torch.cuda.stream(torch.cuda.Stream()):
        add(x, y)


def of_memory_that_nobody_wrote(add):
    x, y = tensors()
    add(y, x)


def of_memory_that_was_freed_and_given_again(add):
    for _ in range(4):
        x, y = tensors()
        add(x, y)
        add(y, x)
        del x, y


def of_slices(add):
    both = torch.zeros(128, dtype=torch.int32, device="cuda")
    torch.cuda.synchronize()
    out = torch.zeros(64, dtype=torch.int32, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        add(both[:64], out)
    both[64:] += 1


def freed_while_another_stream_uses_it(add, until="nothing", size=64, make_on_side=False):
    """Free a tensor of one stream which another one uses, and make another one in the first."""
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    makes, uses = (side, main) if make_on_side else (main, side)
    y = torch.zeros(64, dtype=torch.int32, device="cuda")
    with torch.cuda.stream(makes):
        x = torch.zeros(64, dtype=torch.int32, device="cuda")
    uses.wait_stream(makes)
    uses.wait_stream(main)
    with torch.cuda.stream(uses):
        add(x, y)
    if until == "recorded":
        x.record_stream(uses)
    elif until == "recorded in the stream that made it":
        x.record_stream(makes)
    elif until == "waited for, then freed":
        makes.wait_stream(uses)
    del x
    if until == "freed, then waited for":
        makes.wait_stream(uses)
    elif until == "the host waited":
        torch.cuda.synchronize()
    with torch.cuda.stream(uses if until == "made in the other stream" else makes):
        torch.empty(size, dtype=torch.int32, device="cuda")


FREED = [
    ({}, ["unordered-write"]),
    ({"make_on_side": True}, ["unordered-write"]),
    ({"size": 32}, ["unordered-write"]),
    ({"size": 65}, []),  # it does not fit
    ({"size": 1 << 20}, []),
    ({"until": "recorded"}, []),
    ({"until": "recorded", "make_on_side": True}, []),
    ({"until": "recorded in the stream that made it"}, ["unordered-write"]),
    ({"until": "waited for, then freed"}, []),
    ({"until": "freed, then waited for"}, []),
    ({"until": "the host waited"}, []),
    ({"until": "made in the other stream"}, []),
]


@pytest.fixture
def nothing_freed():
    """Let go of what other tests have freed: it may fit better."""
    allocations.release_freed()


@pytest.mark.usefixtures("nothing_freed")
@pytest.mark.parametrize(("options", "kinds"), FREED)
def test_memory_that_is_freed_while_another_stream_uses_it(options, kinds):
    assert kinds_of(lambda add: freed_while_another_stream_uses_it(add, **options)) == kinds


def test_memory_is_given_away_once_and_to_what_fits_best():
    with serve_cuda():
        stream = torch.cuda.Stream().cuda_stream
        with torch.cuda.stream(torch.cuda.ExternalStream(stream)):
            sizes = 4096, 1024, 2048
            made = [torch.empty(size, dtype=torch.uint8, device="cuda") for size in sizes]
        places = [tensor.data_ptr() for tensor in made]
        del made
        given = [allocations.given_away(1025, stream) for _ in range(3)]
    assert given == [(places[2], 2048), (places[0], 4096), None]


@pytest.mark.usefixtures("nothing_freed")
def test_what_is_missing_where_memory_is_freed_early():
    module = load_ptx(PTX)
    with serve_cuda(sanitize=True) as run:
        freed_while_another_stream_uses_it(
            lambda x, y: module.launch("add", 1, 64, [x, y], stream=torch.cuda.current_stream())
        )
        (found,) = run.hazards
        run.restart()
    assert "reuse write by the host in stream 0x0 at " in str(found)
    assert "record_stream" in " ".join(found.advice)


@pytest.mark.parametrize(
    "script",
    [
        in_one_stream,
        with_all_that_waits,
        with_a_host_that_waits,
        with_a_host_that_polls,
        with_an_event_that_is_recorded_again,
        with_a_number_that_the_host_waits_for,
        of_memory_that_was_freed_and_given_again,
        of_slices,
    ],
)
def test_a_script(script):
    assert kinds_of(script) == []


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        (of_what_is_on_another_stream, "unordered-read"),
        (whose_result_is_read_on_another_stream, "unordered-read"),
        (whose_result_a_kernel_reads_on_another_stream, "unordered-read"),
        (whose_memory_is_first_filled_on_another_stream, "unordered-read"),
        (whose_memory_two_streams_fill_before_any_launch, "unordered-write"),
        (with_a_host_that_asks_and_goes_on, "unordered-read"),
        (with_an_event_that_is_recorded_again_in_another_stream, "unordered-read"),
        (whose_host_asked_before_an_event_was_recorded_again, "unordered-read"),
        (of_memory_that_nobody_wrote, "uninitialised-read"),
    ],
)
def test_a_script_that_is_wrong(script, kind):
    assert kinds_of(script) == [kind]


@pytest.mark.parametrize("name", ["driver", "runtime"])
@pytest.mark.parametrize(("flags", "kinds"), [(0, []), (1, ["unordered-read"])], ids=["blocking", "not blocking"])
def test_streams_of_the_bindings_wait_for_the_default_one_as_they_were_made(name, flags, kinds):
    bindings = pytest.importorskip(f"cuda.bindings.{name}")

    def script(add):
        x, y = tensors()
        make = bindings.cuStreamCreate if name == "driver" else bindings.cudaStreamCreateWithFlags
        _, stream = make(flags)
        with torch.cuda.stream(torch.cuda.ExternalStream(int(stream))):
            add(x, y)

    assert kinds_of(script) == kinds


@pytest.mark.parametrize(("beside", "kinds"), [(False, []), (True, ["unordered-read"])])
def test_memory_that_the_bindings_fill_is_written_in_the_stream_that_is_said(beside, kinds):
    driver = pytest.importorskip("cuda.bindings.driver")

    def script(add):
        x, y = tensors()
        stream = torch.cuda.Stream() if beside else torch.cuda.current_stream()
        stream.wait_stream(torch.cuda.current_stream())
        driver.cuMemsetD32Async(y.data_ptr(), 7, y.numel(), stream.cuda_stream)
        add(y, x)

    assert kinds_of(script) == kinds


def test_a_stream_is_as_the_last_of_its_handle_was_made():
    """Libraries that are loaded anew count theirs from the same number."""
    module, handle = load_ptx(PTX), 0x5900_0000
    found = []
    for blocking in (False, True, False):
        with serve_cuda():
            x, y = tensors()
            with contextlib.suppress(HazardError), cutepy.simulate(sanitize=True) as run:
                tell(StreamEvent("create", handle, blocking=blocking))
                module.launch("add", 1, 64, [x, y])
                module.launch("add", 1, 64, [y, x], stream=handle)
            found.append(len(run.hazards) > 0)
    assert found == [True, False, True]


@pytest.mark.parametrize("name", ["driver", "runtime"])
def test_who_polls_by_the_bindings_waits(name):
    bindings = pytest.importorskip(f"cuda.bindings.{name}")
    prefix = "cu" if name == "driver" else "cuda"

    def script(add):
        x, y = tensors()
        torch.cuda.synchronize()
        make, record, ask = (
            getattr(bindings, f"{prefix}{call}") for call in ("EventCreate", "EventRecord", "EventQuery")
        )
        (_, event), side = make(*[0] * (name == "driver")), torch.cuda.Stream()
        with torch.cuda.stream(side):
            add(x, y)
        record(event, side.cuda_stream)
        codes = [int(ask(event)[0]) for _ in range(3)]
        assert codes == [600, 0, 0]
        asked = getattr(bindings, f"{prefix}StreamQuery")
        assert [int(asked(side.cuda_stream)[0]) for _ in range(2)] == [600, 0]
        add(y, x)

    assert kinds_of(script) == []


def test_streams_that_were_made_before_an_inner_run_do_not_wait_for_the_default_one_there():
    module = load_ptx(PTX)
    with serve_cuda():
        x, y = tensors()
        side = torch.cuda.Stream()
        with contextlib.suppress(HazardError), cutepy.simulate(sanitize=True) as inner:
            module.launch("add", 1, 64, [x, y], stream=side)
            module.launch("add", 1, 64, [y, x])
        assert {hazard.kind for hazard in inner.hazards} >= {"unordered-read"}
        with cutepy.simulate(sanitize=True) as inner:
            module.launch("add", 1, 64, [x, y], stream=side)
            side.synchronize()
            module.launch("add", 1, 64, [y, x])
        assert not inner.hazards


def test_a_report_names_the_line_of_the_host():
    module = load_ptx(PTX)
    with serve_cuda(sanitize=True) as run:
        x, y = tensors()
        with torch.cuda.stream(torch.cuda.Stream()):
            module.launch("add", 1, 64, [x, y], stream=torch.cuda.current_stream())
        (found,) = run.hazards
        run.restart()
    assert "aten::zero_ write by the host in stream 0x0 at " in str(found)
    assert "test_stream_order.py:" in str(found)
