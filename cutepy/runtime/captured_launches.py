"""Launches that are captured into a CUDA graph: programmatic behind one of cutepy's, else plain.

A kernel that is launched with programmatic stream serialization begins while the kernel before it ends, if that one
lets it begin, as those of cutepy do. Behind a kernel of torch's, such a launch of a graph took 0.5 us longer than a
plain one (60 products and 12 norms on an H200, driver 580). Behind kernels that only spin it took 0.1 us longer
(`launch.neighbours` of ``tests.time``): the rest of the cause is not known. A capture shows which node a launch
follows, so the attribute is kept where it pays. Outside of captures launches are programmatic: a stream doesn't show
what was launched last. To ask whether a stream is captured takes 0.1 us of a launch; a captured launch takes 8.5 us
longer (`cutepy.ops.gemm` of 64 x 64, 13.3 us a call, H200's machine, 2026-11-30).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from cutepy.runtime.launch_structures import PROGRAMMATIC, LaunchConfig

_P, _I = ctypes.c_void_p, ctypes.c_int32
PROTOTYPE = ctypes.CFUNCTYPE(_I, _P, _P, _P, _P)
"""Of `cuLaunchKernelEx`: configuration, kernel, parameters, null."""
UNKNOWN_ERROR = 999
"""CUDA's number of an error that it has no name for."""
KEPT_CAPTURES = 16
"""Captures whose launches are remembered, at most: those under way at a time."""


def launch_code(is_capturing: int, launch: int, launch_captured: int) -> bytes:
    """Write x86-64 code of `launch(config, kernel, params, null)`, or `launch_captured` where the stream is captured.

    Compiled host code calls it with three arguments; the driver wants a fourth, which must be null.

    Parameters
    ----------
    is_capturing, launch, launch_captured : int
        Addresses of `cuStreamIsCapturing`, of `cuLaunchKernelEx`, and of a function like that.
    """
    return b"".join(
        (
            b"\x53\x41\x54\x41\x55",  # push rbx, r12, r13: the stack is aligned now
            b"\x48\x83\xec\x10",  # sub rsp, 16
            b"\x48\x89\xfb\x49\x89\xf4\x49\x89\xd5",  # mov rbx, rdi; mov r12, rsi; mov r13, rdx
            b"\xc7\x44\x24\x0c\x00\x00\x00\x00",  # mov dword [rsp+12], 0
            b"\x48\x8b\x7f%c" % LaunchConfig.stream.offset,  # mov rdi, [rdi+32]
            b"\x48\x8d\x74\x24\x0c",  # lea rsi, [rsp+12]
            b"\x48\xb8" + is_capturing.to_bytes(8, "little") + b"\xff\xd0",  # movabs rax; call rax
            b"\x8b\x44\x24\x0c",  # mov eax, [rsp+12]
            b"\x48\x89\xdf\x4c\x89\xe6\x4c\x89\xea",  # mov rdi, rbx; mov rsi, r12; mov rdx, r13
            b"\x48\x83\xc4\x10\x41\x5d\x41\x5c\x5b",  # add rsp, 16; pop r13, r12, rbx
            b"\x31\xc9\x85\xc0\x75\x0c",  # xor ecx, ecx; test eax, eax; jnz over the next two
            b"\x48\xb8" + launch.to_bytes(8, "little") + b"\xff\xe0",  # movabs rax; jmp rax
            b"\x48\xb8" + launch_captured.to_bytes(8, "little") + b"\xff\xe0",
        )
    )


class CapturedLaunches:
    """Launches into captures, and the nodes that they have made.

    Parameters
    ----------
    launch : callable
        `cuLaunchKernelEx`.
    dependencies : callable
        Gives the id of the capture of a stream, and the nodes that the next launch will follow.

    Attributes
    ----------
    failure : Exception or None
        Why the last launch returned `UNKNOWN_ERROR`, if CUDA did not.
    """

    def __init__(
        self, launch: Callable[[int, int, int, None], int], dependencies: Callable[[int], tuple[int, frozenset[int]]]
    ) -> None:
        self._launch, self._dependencies = launch, dependencies
        self._made: dict[int, set[int]] = {}
        self.failure: Exception | None = None

    def launch(self, config: int, kernel: int, params: int, extra: int | None) -> int:
        """Launch, programmatic only if each node before is one of these launches; return CUDA's error code."""
        self.failure = None
        try:
            launched = LaunchConfig.from_address(config)
            stream = launched.stream or 0
            capture, before = self._dependencies(stream)
            made = self._made.setdefault(capture, set())
            if not (before and before <= made):
                _forbid_overlap(launched)
            code = self._launch(config, kernel, params, None)
            if code == 0:
                made |= self._dependencies(stream)[1]
            while len(self._made) > KEPT_CAPTURES:
                del self._made[next(iter(self._made))]
        except Exception as error:  # an exception can't cross C frames
            self.failure = error
            return UNKNOWN_ERROR
        return code


def _forbid_overlap(config: LaunchConfig) -> None:
    """Set the value of programmatic stream serialization to 0, if a launch has the attribute."""
    for attribute in config.attributes[: config.count]:
        if attribute.identity == PROGRAMMATIC:
            attribute.value[0] = 0
