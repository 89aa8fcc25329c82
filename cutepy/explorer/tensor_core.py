"""An SM100 atom: instruction descriptor, operands in shared memory, tensor memory by lanes and columns, its loads."""

from __future__ import annotations

from typing import Any

from cutepy.explorer.parameters import BadParameterError, Parameters
from cutepy.explorer.smem_operand import END_BYTES, Form, SmemOperand, check_room, room
from cutepy.layouts import sm100, to_text
from cutepy.layouts.errors import LayoutError
from cutepy.layouts.hardware import MAJORS, AnySwizzleMode, Major
from cutepy.layouts.render import picture_of, render_raw
from cutepy.layouts.sm90.arch import UNIT_BYTES
from cutepy.layouts.sm100.arch import SMEM_LAYOUT_TYPE
from cutepy.layouts.sm100.kinds import KINDS
from cutepy.layouts.sm100.tmem_copy import SHAPES

UMMA_KINDS = tuple(KINDS)
UMMA_TYPES = ("", *dict.fromkeys(dtype for kind in KINDS.values() for dtype in kind.codes))
"""Element types of A and B; empty for the kind's first."""
UMMA_SOURCES = ("SS", "TS")
UMMA_SWIZZLES = tuple(SMEM_LAYOUT_TYPE)
CTA_GROUPS = ("1", "2")
LOADS = tuple(shape for shape in SHAPES if not shape.endswith("x2"))
"""Shapes of tcgen05.ld, but for those of two halves that lie apart."""
UMMA_PICTURES = ("D", "A", "SFA", "SFB", "sA", "sB", "load", "descriptor")
"""Tensor memory of D, A and block scales; shared memory of A and B; a tcgen05.ld; the instruction descriptor."""
MAX_STAGES = 16
MAX_K = 1024

_UMMA = Form(sm100.umma_layout_atom, sm100.SmemDescriptorIterator)


def tensor_core(asked: Parameters) -> dict[str, Any]:
    """Return an MMA of the tensor core: descriptors, operands in shared and tensor memory, and one picture of them."""
    asked.known(
        "kind", "a_dtype", "b_dtype", "m", "n", "cta_group", "source", "major_a", "major_b", "swizzle_a", "swizzle_b",
        "tile_k", "stages", "address", "load", "repeats", "picture",
    )  # fmt: skip
    traits, load = _atom(asked), _load(asked)
    stages = asked.number("stages", 1, MAX_STAGES, 1)
    smem = _operands(asked, traits, stages)
    tensors = _tensors(traits)
    columns = sum(tensor.columns for tensor in tensors.values())
    descriptor = traits.descriptor
    answer: dict[str, Any] = {
        "atom": traits.name,
        "ptx": traits.ptx,
        "shape_mnk": list(traits.shape_mnk),
        "cta_group": traits.cta_group,
        "instruction_descriptor": {
            "word": f"{int(descriptor):#010x}",
            "fields": [
                {"bits": bits, "value": value, "meaning": meaning} for bits, value, meaning in descriptor.rows()
            ],
        },
        **{f"s{name}": operand.told() for name, operand in smem.items()},
        "tensor_memory": {
            name: {"layout": to_text(tensor.layout), "columns": tensor.columns} for name, tensor in tensors.items()
        },
        "columns": columns,
        "allocation": sm100.allocation_columns(columns),
        "load": {
            "name": load.name,
            "ptx": load.ptx,
            "layout": to_text(load.layout),
            "registers": load.registers,
            "columns": load.columns,
        },
        **room(smem, stages),
    }
    answer["picture"] = _picture(asked, traits, load, smem, tensors)
    return answer


def _atom(asked: Parameters) -> sm100.UmmaTraits:
    kind = asked.choice("kind", UMMA_KINDS, "f16")
    options: dict[str, Any] = {
        name: asked.choice(name, UMMA_TYPES) for name in ("a_dtype", "b_dtype") if asked.has(name)
    }
    source = asked.choice("source", UMMA_SOURCES, "SS")
    try:
        return sm100.umma_traits(
            kind,
            asked.number("m", 32, 256, 128),
            asked.number("n", 8, 256, 128),
            a_major=asked.choice("major_a", MAJORS, "K"),
            b_major=asked.choice("major_b", MAJORS, "K"),
            cta_group=int(asked.choice("cta_group", CTA_GROUPS, "1")),
            a_source="smem" if source == "SS" else "tmem",
            **options,
        )
    except LayoutError as error:
        raise BadParameterError("kind", str(error)) from error


def _load(asked: Parameters) -> sm100.TmemCopyTraits:
    try:
        return sm100.tmem_load_traits(asked.choice("load", LOADS, "32x32b"), asked.number("repeats", 1, 128, 8))
    except LayoutError as error:
        raise BadParameterError("repeats", str(error)) from error


def _operands(asked: Parameters, traits: sm100.UmmaTraits, stages: int) -> dict[str, SmemOperand]:
    m, n, k = traits.shape_mnk
    tile_k = asked.number("tile_k", 1, MAX_K, 4 * k)
    if tile_k % k:
        raise BadParameterError("tile_k", f"tile_k must be a multiple of the atom's {k}, got {tile_k}")
    parts = {"A": (m // traits.cta_group, traits.a_bits), "B": (n // traits.cta_group, traits.b_bits)}
    if traits.a_source == "tmem":
        del parts["A"]
    address = asked.number("address", 0, END_BYTES - UNIT_BYTES, 0)
    check_room(sum(rows * tile_k * stages * bits // 8 for rows, bits in parts.values()), address, stages)
    found: dict[str, SmemOperand] = {}
    for name, (rows, bits) in parts.items():
        major: Major = asked.choice(f"major_{name.lower()}", MAJORS, "K")
        swizzle: AnySwizzleMode = asked.choice(f"swizzle_{name.lower()}", UMMA_SWIZZLES, "SW128")
        shape = rows, tile_k, stages
        found[name] = SmemOperand(_UMMA, name, shape, (rows, k), bits, address, major=major, swizzle=swizzle)
        address += found[name].size_bytes
    return found


def _tensors(traits: sm100.UmmaTraits) -> dict[str, sm100.TmemTensor]:
    """List the tensors in tensor memory."""
    found = {"D": traits.accumulator}
    if traits.a_source == "tmem":
        found["A"] = traits.a_in_tmem
    if traits.scale_vector is not None:
        found |= {"SFA": traits.scales_a, "SFB": traits.scales_b}
    return found


def _picture(
    asked: Parameters,
    traits: sm100.UmmaTraits,
    load: sm100.TmemCopyTraits,
    smem: dict[str, SmemOperand],
    tensors: dict[str, sm100.TmemTensor],
) -> dict[str, Any]:
    chosen = asked.choice("picture", UMMA_PICTURES, "D")
    if chosen in ("load", "descriptor"):
        return render_raw(picture_of(load if chosen == "load" else traits.descriptor))
    if chosen in tensors:
        return render_raw(picture_of(tensors[chosen]))
    if chosen[1:] in smem:
        return smem[chosen[1:]].picture()
    reasons = {
        "A": "A comes from shared memory (SS), not from tensor memory: draw sA",
        "sA": "A comes from tensor memory (TS), not from shared memory: draw A",
    }
    raise BadParameterError("picture", reasons.get(chosen, f"kind::{traits.kind.name} has no block scales: draw D"))
