"""Compare the compiled code of a configuration with its intent: MMA, descriptors, barriers; needs no GPU."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from cutepy.anatomy import protocol
from cutepy.device import rules
from cutepy.host.function import Function
from cutepy.kernels.gemm.config import GemmConfig
from cutepy.layouts import sm90
from cutepy.layouts.sm90 import arch

_PREFIX = "wgmma.mma_async.sync.aligned."


@dataclass(frozen=True)
class Fact:
    """One property of compiled code, with its intended and its actual value.

    Attributes
    ----------
    name : str
        Name of the property.
    meant, found : str
        As the configuration has it, and as the compiled code has it.
    """

    name: str
    meant: str
    found: str

    @property
    def holds(self) -> bool:
        """True if intended and actual value agree."""
        return self.meant == self.found


def facts(config: GemmConfig, compiled: Function) -> list[Fact]:
    """Read the MMA, its descriptors, the barriers, shared memory and local memory from a compiled kernel."""
    (resources,) = compiled.resources
    return [
        *_mma_facts(config, compiled.ptx),
        *_barrier_facts(config, compiled.ptx),
        Fact("shared memory", f"{config.smem_bytes} bytes", f"{resources.dynamic_smem_bytes} bytes"),
        Fact("stack frame", "0 bytes", f"{resources.stack_bytes} bytes"),
    ]


def _mma_facts(config: GemmConfig, text: str) -> Iterator[Fact]:
    signature = config.signature
    mmas = protocol.wgmmas(text, thread=arch.WARPGROUP_THREADS)  # the first consumer thread
    found = _join(m.spelling.removeprefix(_PREFIX) for m in mmas)
    yield Fact("wgmma", config.tiled_mma.traits.ptx.removeprefix(_PREFIX), found)
    meant = tuple(int(major == "mn") for major in (signature.a_major, signature.b_major))
    yield Fact("transposes of A, B", str(meant), _join(str(m.transpose) for m in mmas))
    descriptors = [(int(a), int(b)) for a, b in _descriptors(config)]
    for operand, name in enumerate("AB"):
        yield Fact(
            f"descriptors of {name}",
            _join(f"{pair[operand]:#018x}" for pair in descriptors),
            _join(f"{m.descriptors[operand]:#018x}" for m in mmas),
        )
    # The MMAs are there twice: for the first K tile, and in the loop over the others, which first runs in stage 1. Only
    # the first of the first, one for each 64 rows of a warpgroup, overwrite the accumulators.
    overwriting = config.tile_m // (64 * config.warpgroups)
    accumulate = [False] * overwriting + [True] * (len(descriptors) - overwriting)
    yield Fact("MMAs that accumulate", _digits(accumulate), _digits(m.accumulate for m in mmas))


def _descriptors(config: GemmConfig) -> Iterator[tuple[sm90.GmmaDescriptor, sm90.GmmaDescriptor]]:
    """Return the (A, B) descriptors of the first consumer thread's MMAs in stages 0 and 1, with shared memory at 0."""
    signature, bits = config.signature, config.signature.operand_bits
    k = 256 // bits
    b_address = config.stages * rules.tile_bytes(config.tile_m, config.tile_k, bits)
    a = sm90.GmmaDescriptorIterator(
        config.a_layout, major="K" if signature.a_major == "k" else "MN", bits=bits, mma_shape=(64, k), base_address=0
    )
    b = sm90.GmmaDescriptorIterator(
        config.b_layout,
        major="K" if signature.b_major == "k" else "MN",
        bits=bits,
        mma_shape=(config.staged_n, k),
        base_address=b_address,
    )
    for stage in (0, 1):
        for k_block in range(config.tile_k // k):
            for row in range(0, config.tile_m // 64, config.warpgroups):
                yield a[row, k_block, stage], b[0, k_block, stage]


def _barrier_facts(config: GemmConfig, text: str) -> Iterator[Fact]:
    warps = config.warpgroups * arch.WARPGROUP_THREADS // arch.WARP_THREADS
    released = rules.empty_barrier_arrivals(warps, (config.cluster_m, config.cluster_n))
    meant = [1, released] * config.stages + [1, warps] * config.c_stages
    yield Fact("mbarrier arrivals", str(meant), str(protocol.mbarrier_counts(text)))
    meant = [config.stage_bytes] + [config.c_stage_bytes] * (config.subtiles if config.c_stages else 0)
    found = [step.operands[1] for step in protocol.steps(text) if step.name == "mbarrier.arrive.expect_tx"]
    yield Fact("bytes of a stage", str(meant), str(found))


def _digits(values: Iterable[bool]) -> str:
    return "".join(str(int(value)) for value in values)


def _join(values: Iterable[str]) -> str:
    """Join the distinct values in order of appearance."""
    return ", ".join(dict.fromkeys(values))
