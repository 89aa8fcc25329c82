"""Model of an explanation: the values behind the text, the page and the JSON.

A value that only a launch determines is None, or an empty tuple, if no launch was observed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from cutepy.layouts import LayoutError
from cutepy.layouts.hardware import AnySwizzleMode
from cutepy.layouts.sm90 import GmmaDescriptor, Im2colTensorMap, TensorMap
from cutepy.layouts.sm90.arch import GMMA_LAYOUT_TYPE, Major
from cutepy.layouts.sm100 import SmemDescriptor
from cutepy.layouts.sm100.arch import SMEM_LAYOUT_TYPE

Dim3 = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Site:
    """Source location of instructions.

    Attributes
    ----------
    lines : tuple of str
        Lines of Python as "file:line", the user's before those of libraries that it calls; empty without `.loc`.
    ptx_lines : tuple of int
        Lines of the PTX.
    """

    lines: tuple[str, ...] = ()
    ptx_lines: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Operand:
    """Operand A or B of some wgmma instructions.

    Attributes
    ----------
    dtype : str
        PTX's name of the element type.
    bits : int
        Width of an element; single bits are taken as bytes.
    major : "MN" or "K"
    shape_mn_k : (int, int)
        Elements of the tile that one instruction reads: of a sparse A, half of K.
    source : "shared memory" or "registers"
    descriptors : tuple of int
        The 64-bit words that were seen, in order.
    complete : bool
        True if these are all there are: one for each instruction that has a constant, or those of a launch. If not,
        each is what its instruction has when it is first reached.
    lbo, sbo : int or None
        Leading and stride byte offset.
    swizzle : "INTER", "SW32", "SW64", "SW128", "SW128_32B" or None
    base_offset : int or None
    """

    dtype: str
    bits: int
    major: Major
    shape_mn_k: tuple[int, int]
    source: str
    descriptors: tuple[int, ...] = ()
    complete: bool = False
    lbo: int | None = None
    sbo: int | None = None
    swizzle: AnySwizzleMode | None = None
    base_offset: int | None = None

    @property
    def start_addresses(self) -> tuple[int, ...]:
        """Start addresses of tiles in shared memory: bytes, each once, rising."""
        return tuple(sorted({(word & 0x3FFF) << 4 for word in self.descriptors}))

    @property
    def descriptor(self) -> GmmaDescriptor | SmemDescriptor | None:
        """Descriptor with the lowest start, or 0 for an unknown start; None if its other fields are unknown."""
        if self.lbo is None or self.sbo is None or self.swizzle is None or self.base_offset is None:
            return None
        fields: dict[str, Any] = {
            "start_address": min(self.start_addresses, default=0),
            "leading_byte_offset": self.lbo,
            "stride_byte_offset": self.sbo,
            "base_offset": self.base_offset,
            "major": self.major,
            "bits": self.bits,
            "shape_mn_k": self.shape_mn_k,
        }
        try:
            if self.swizzle == "SW128_32B":
                return SmemDescriptor(layout_type=SMEM_LAYOUT_TYPE[self.swizzle], **fields)
            return GmmaDescriptor(layout_type=GMMA_LAYOUT_TYPE[self.swizzle], **fields)
        except LayoutError:
            return None


@dataclass(frozen=True, slots=True)
class Mma:
    """Instructions that differ in their descriptors only: one line of the source, unrolled.

    Attributes
    ----------
    opcode : str
    shape_mnk : (int, int, int) or None
        None if the instruction is of a form that is not known.
    accumulator : str
        Its type.
    a, b : Operand or None
    instructions : int
        Number of instructions.
    issued : int or None
        Times that a warpgroup issued one.
    warpgroups : tuple of int
        Warpgroups that issued the instructions.
    site : Site
    remark : str
        Description of unreadable parts.
    """

    opcode: str
    shape_mnk: Dim3 | None
    accumulator: str
    a: Operand | None
    b: Operand | None
    instructions: int
    issued: int | None
    warpgroups: tuple[int, ...]
    site: Site
    remark: str = ""


@dataclass(frozen=True, slots=True)
class Copy:
    """Instructions of one line that copy boxes of one tensor, or plain bytes, asynchronously.

    Attributes
    ----------
    opcode : str
    operation : str
        "load", "store", "prefetch", or a reduction such as "add".
    rank : int or None
        Coordinates; None for a copy of plain bytes.
    multicast : bool
    tensor_maps : tuple of TensorMap or Im2colTensorMap
        That it was seen to have: several where a kernel goes through tensors of several shapes. Those that differ in
        the address only are one.
    parameter : str
        The parameter of the kernel that holds the first tensor map, where one does.
    instructions : int
    issued : int or None
        Times that a thread issued one.
    bytes : int or None
        Bytes of one copy.
    shared_addresses : tuple of int
        Start addresses of boxes in shared memory: bytes, each once, rising.
    coordinates : tuple of tuple of int
        Coordinates of the boxes, the contiguous mode first; each once.
    barriers : tuple of str
        The mbarriers at which bytes are counted.
    site : Site
    """

    opcode: str
    operation: str
    rank: int | None
    multicast: bool
    tensor_maps: tuple[TensorMap | Im2colTensorMap, ...]
    parameter: str
    instructions: int
    issued: int | None
    bytes: int | None
    shared_addresses: tuple[int, ...]
    coordinates: tuple[tuple[int, ...], ...]
    barriers: tuple[str, ...]
    site: Site

    @property
    def tensor_map(self) -> TensorMap | Im2colTensorMap | None:
        """First tensor map."""
        return self.tensor_maps[0] if self.tensor_maps else None


@dataclass(frozen=True, slots=True)
class Party:
    """Operation of some threads on a barrier.

    Attributes
    ----------
    action : str
        "init", "arrive", "expect_tx", "complete_tx", "wait", "sync".
    site : Site
    threads : str
        Such as "threads 0-127"; empty if only a launch tells.
    times : int or None
        Number of times; a warp's threads count once.
    waited : int or None
        Times that a warp had to wait, in the simulator's schedule.
    amounts : tuple of int
        Arrivals, or bytes, of one time: each once, rising.
    """

    action: str
    site: Site
    threads: str = ""
    times: int | None = None
    waited: int | None = None
    amounts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Barrier:
    """Barrier, or the stages of a ring of equal ones.

    Attributes
    ----------
    kind : "mbarrier", "bar" or "cluster"
    name : str
        Name in the source, such as "ring.full"; else its address or number; empty if neither is known.
    addresses : tuple of int
        In shared memory, one for each stage; empty if only a launch decides them, or without an mbarrier.
    arrivals : int or None
        Arrivals that a phase expects.
    parties : tuple of Party
    """

    kind: str
    name: str
    addresses: tuple[int, ...]
    arrivals: int | None
    parties: tuple[Party, ...]

    @property
    def is_nameless(self) -> bool:
        """True if `name` is its address, for want of a name in the source."""
        return bool(self.addresses) and self.name == f"{self.addresses[0]:#x}"

    def of(self, *actions: str) -> tuple[Party, ...]:
        """List the operations with some actions."""
        return tuple(party for party in self.parties if party.action in actions)


@dataclass(frozen=True, slots=True)
class Region:
    """Range of shared memory with one use.

    Attributes
    ----------
    start, bytes : int
    what : str
        Use of the region: an operand, a barrier, a variable.
    writers, readers : tuple of str
        Users: role, and line of the source.
    parts : tuple of int
        Start addresses of the copies or tiles in the region, if there are several.
    starts : tuple of int
        Rising start addresses of the ranges of `bytes` bytes each, if the region is several at regular distances.
    """

    start: int
    bytes: int
    what: str
    writers: tuple[str, ...] = ()
    readers: tuple[str, ...] = ()
    parts: tuple[int, ...] = ()
    starts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TmemPart:
    """Block of tensor memory with one use.

    Attributes
    ----------
    first, columns : int
        Columns, counted from the allocation's first.
    lanes : tuple of (int, int)
        First and last lane of each run of lanes, in steps of 16.
    what : str
        Use of the block: an accumulator, an operand, block scales, data.
    writers, readers : tuple of str
        Users: instruction, line of the source, and warps of loads and stores.
    """

    first: int
    columns: int
    lanes: tuple[tuple[int, int], ...]
    what: str
    writers: tuple[str, ...] = ()
    readers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TmemAllocation:
    """Columns of tensor memory that a tcgen05.alloc gives a CTA.

    Attributes
    ----------
    columns : int or None
        None if the number is computed, and no launch was observed.
    site : Site
    ctas : 1 or 2
        CTAs that allocate together, by `.cta_group`.
    threads : str
        Allocating threads, such as "warp 0"; empty if only a launch tells.
    freed : tuple of Site
        Lines that free the columns, in observed launches.
    parts : tuple of TmemPart
    """

    columns: int | None
    site: Site
    ctas: int
    threads: str = ""
    freed: tuple[Site, ...] = ()
    parts: tuple[TmemPart, ...] = ()


@dataclass(frozen=True, slots=True)
class Advisory:
    """Remark of ptxas, with the lines that it refers to."""

    code: str
    text: str
    sites: tuple[Site, ...]


@dataclass(frozen=True, slots=True)
class RegisterChange:
    """A setmaxnreg: "inc" or "dec" to a number of registers."""

    direction: str
    registers: int | None
    site: Site


@dataclass(frozen=True, slots=True)
class Resources:
    """Resources of a kernel, by an assembler.

    Attributes
    ----------
    assembler : str
        Such as "ptxas 13.0.88"; "its cubin" for a compiled function's own.
    registers : int
        A thread, at launch.
    spill_store_bytes, spill_load_bytes, stack_bytes : int
    static_smem_bytes : int
    ctas_per_sm : int or None
        CTAs that an SM holds; None if only a launch tells.
    limited_by : tuple of str
    """

    assembler: str
    registers: int
    spill_store_bytes: int
    spill_load_bytes: int
    stack_bytes: int
    static_smem_bytes: int
    ctas_per_sm: int | None = None
    limited_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CostlyAccess:
    """Loads or stores of one line that took more than the fewest wavefronts or sectors.

    Attributes
    ----------
    space : "shared" or "global"
        Shared memory is counted in wavefronts, global memory in sectors of 32 bytes.
    opcode : str
    site : Site
    instructions : int
        Instructions of the line with this opcode that took too many.
    warps : int
        Times that a warp executed them.
    taken, fewest : int
        Wavefronts or sectors, and the fewest that any addresses of as many bytes take.
    """

    space: Literal["shared", "global"]
    opcode: str
    site: Site
    instructions: int
    warps: int
    taken: int
    fewest: int


@dataclass(frozen=True, slots=True)
class SlowPlace:
    """Place that costs time, by a prediction with and without it.

    Attributes
    ----------
    kind : str
        Such as "bank conflicts" or "too few stages".
    site : Site
    said : str
        Description of the slow place, with its numbers, and the way in which the cost was predicted.
    remedy : str
    us, of_us : float
        Predicted microseconds that it costs, and those of the launch.
    """

    kind: str
    site: Site
    said: str
    remedy: str
    us: float
    of_us: float


@dataclass(frozen=True, slots=True)
class LaunchFacts:
    """Launch configuration of a kernel.

    Attributes
    ----------
    launches : int or None
        Number of launches; None if no launch was seen.
    grids : tuple of (int, int, int)
        Each once.
    block, cluster : (int, int, int) or None
    static_smem_bytes : int
    dynamic_smem_bytes : int or None
    max_threads : int or None
        Limit of `.maxntid`.
    """

    launches: int | None
    grids: tuple[Dim3, ...]
    block: Dim3 | None
    cluster: Dim3 | None
    static_smem_bytes: int
    dynamic_smem_bytes: int | None
    max_threads: int | None = None


@dataclass(frozen=True, slots=True)
class Kernel:
    """Explanation of one kernel.

    Attributes
    ----------
    name, entry : str
        As people read it, and in full.
    simulated : bool
        True if a launch of the kernel was observed.
    launch : LaunchFacts
    resources : Resources or None
    unassembled : str
        Why ptxas tells nothing: of registers, where there is no cubin, and of advisories. Empty if it does.
    advisories : tuple of Advisory
    register_changes : tuple of RegisterChange
    mmas : tuple of Mma
    copies : tuple of Copy
    barriers : tuple of Barrier
    regions : tuple of Region
        Shared memory's map.
    allocations : tuple of TmemAllocation
        Tensor memory's map.
    accesses : tuple of CostlyAccess
        Uncoalesced accesses and bank conflicts of the launches that were seen, the costliest first.
    slow_places : tuple of SlowPlace
        By predictions with and without them, the costliest first.
    predicted_us : float or None
        Predicted time of the launch that they are of; None if none was predicted.
    predicted_gpu : str
    unpredicted : str
        Why there is no prediction, or why places may be missing.
    unread : tuple of str
        Unreadable instructions of the kernel's PTX.
    """

    name: str
    entry: str
    simulated: bool
    launch: LaunchFacts
    resources: Resources | None
    unassembled: str
    advisories: tuple[Advisory, ...] = ()
    register_changes: tuple[RegisterChange, ...] = ()
    mmas: tuple[Mma, ...] = ()
    copies: tuple[Copy, ...] = ()
    barriers: tuple[Barrier, ...] = ()
    regions: tuple[Region, ...] = ()
    allocations: tuple[TmemAllocation, ...] = ()
    accesses: tuple[CostlyAccess, ...] = ()
    slow_places: tuple[SlowPlace, ...] = ()
    predicted_us: float | None = None
    predicted_gpu: str = ""
    unpredicted: str = ""
    unread: tuple[str, ...] = ()


@dataclass(frozen=True)
class Findings:
    """Explanation of the kernels of a PTX module, or of a run.

    Attributes
    ----------
    source : str
        Name of the explained source.
    kernels : tuple of Kernel
    ptx_version, target : str
        Version and target of the module.
    notes : tuple of str
        Remarks on the whole explanation.
    """

    source: str
    kernels: tuple[Kernel, ...]
    ptx_version: str = ""
    target: str = ""
    notes: tuple[str, ...] = ()
