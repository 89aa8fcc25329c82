"""Blackwell's layouts: descriptors of shared memory and of instructions, tensor memory, its loads, stores and copies.

Everything here is a value computed without a GPU or a compiler.
"""

from .atoms import traits_named as traits_named
from .descriptor import SmemDescriptor as SmemDescriptor
from .instr_descriptor import InstrDescriptor as InstrDescriptor
from .kinds import MmaKind as MmaKind, mma_kind as mma_kind
from .narrow_map import NarrowTensorMap as NarrowTensorMap
from .smem import (
    SmemDescriptorIterator as SmemDescriptorIterator,
    make_umma_desc as make_umma_desc,
    umma_layout_atom as umma_layout_atom,
)
from .tma import FourRows as FourRows, signalled_cta as signalled_cta, signalled_ctas as signalled_ctas
from .tmem import (
    TmemPlace as TmemPlace,
    TmemTensor as TmemTensor,
    tmem_accumulator as tmem_accumulator,
    tmem_metadata as tmem_metadata,
    tmem_operand as tmem_operand,
    tmem_scale_factors as tmem_scale_factors,
)
from .tmem_copy import (
    TmemCopyTraits as TmemCopyTraits,
    make_tmem_copy as make_tmem_copy,
    tmem_copy_names as tmem_copy_names,
    tmem_load_traits as tmem_load_traits,
    tmem_store_traits as tmem_store_traits,
)
from .tmem_cp import TmemCpTraits as TmemCpTraits, tmem_cp_traits as tmem_cp_traits
from .tmem_plan import TmemPlan as TmemPlan, allocation_columns as allocation_columns
from .umma import UmmaTraits as UmmaTraits, umma_traits as umma_traits

__all__ = [
    "FourRows",
    "InstrDescriptor",
    "MmaKind",
    "NarrowTensorMap",
    "SmemDescriptor",
    "SmemDescriptorIterator",
    "TmemCopyTraits",
    "TmemCpTraits",
    "TmemPlace",
    "TmemPlan",
    "TmemTensor",
    "UmmaTraits",
    "allocation_columns",
    "make_tmem_copy",
    "make_umma_desc",
    "mma_kind",
    "signalled_cta",
    "signalled_ctas",
    "tmem_accumulator",
    "tmem_copy_names",
    "tmem_cp_traits",
    "tmem_load_traits",
    "tmem_metadata",
    "tmem_operand",
    "tmem_scale_factors",
    "tmem_store_traits",
    "traits_named",
    "umma_layout_atom",
    "umma_traits",
]
