"""Scripts on the served device with the sanitizer: streams, events, and memory that nobody wrote."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

from cutepy.frontends import serve_cuda  # noqa: E402
from cutepy.frontends.ptx.modules import load_ptx  # noqa: E402

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


@pytest.mark.parametrize(
    "script",
    [
        in_one_stream,
        with_all_that_waits,
        with_a_host_that_waits,
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
        (of_memory_that_nobody_wrote, "uninitialised-read"),
    ],
)
def test_a_script_that_is_wrong(script, kind):
    assert kinds_of(script) == [kind]


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
