"""Undocumented names of the DSL that cutepy uses, with their purpose.

A release may change any of these. `require` checks the names that it is given when they are used, and reports the
missing one; a test compares this list with the source, and every name with the installed version.
"""

from __future__ import annotations

from dataclasses import dataclass

from cutepy.text_tables import rows_of


@dataclass(frozen=True)
class PrivateNames:
    """Undocumented names in one place of the DSL.

    Attributes
    ----------
    where : str
        A module, or in words the object that has them as attributes.
    names : tuple of str
        Attributes, with dots for attributes of these.
    purpose : str
        Purpose of the names.
    without : str
        Loss in versions without them; empty for names that cutepy needs.
    """

    where: str
    names: tuple[str, ...]
    purpose: str
    without: str = ""


_TABLE = """
cutlass._mlir.ir: Attribute Context InsertionPoint IntegerAttr IntegerType MLIRError Location Module OpResultList
  StringAttr Type Value | MLIR's bindings, as MLIR documents them: to read and change what is traced, and compiled host
  code
MLIR's dialects, in cutlass._mlir.dialects: arith cuda cute func llvm | writes what checks the tensors of TMA's maps
  into host code
cutlass._mlir.dialects.nvvm: MemScopeKind | arrives at an mbarrier by a release for a cluster
cutlass._mlir.dialects.nvvm: tcgen05_fence Tcgen05FenceKind | fences the tensor core around arrivals
cutlass._mlir.dialects.llvm: inline_asm AsmDialect | writes the probes of timelines
cutlass._mlir.execution_engine: ExecutionEngine | compiles what the simulator runs often to machine code | numpy
  computes it, as the rest
cutlass._mlir.passmanager: PassManager | strips locations, for keys
cutlass._mlir._mlir_libs._cutlass_ir: _aot_support.export_module_to_bytes | writes compiled host code as an object
cutlass._mlir_helpers.op: _get_caller_frame_info _get_location_from_frame_info _is_framework_stack_frame | which line an
  operation comes from, and its callers: remembered while a function is traced
cutlass._mlir_helpers.op: _INCLUDE_LIB_FRAME _fast_frameinfo | leaves the lines of the DSL itself to who debugs it, and
  looks lines up without reading files | tracing takes longer, as each line of Python is looked up in its file, once a
  trace
cutlass.base_dsl.ast_preprocessor: DSLPreprocessor.exec DSLPreprocessor.transform | rewrites functions before they are
  traced: once, and not in each process
cutlass.base_dsl.ast_preprocessor: DSLPreprocessor.exec_imports DSLPreprocessor.issue_deprecation_warning | tell
  preprocessors whose results can't be kept, and functions that are to be warned of each time | nothing; versions that
  have exec_imports rewrite in each process
cutlass.base_dsl.common: DSLCudaRuntimeError | what the DSL makes of an error of CUDA
cutlass.base_dsl.compiler: Compiler.compile | held up between tracing and compiling
cutlass.base_dsl.compiler: CompileOptions.apply_envar_settings GenerateLineInfo KeepPTX | makes the simulator's
  compilations keep their PTX, in files of their own
cutlass._mlir.dialects.cute: MemRefType print_view | lets host code print what the simulator holds
cutlass.cute.tensor: _Tensor | the pointer and layout of what host code prints
cutlass.base_dsl.export.external_binary_module: ExternalBinaryModule.__getattr__ | tells functions loaded from object
  files, which can't be simulated
cutlass.base_dsl.dsl: BaseDSL._lazy_initialize_dsl | finds the object that traces a function
cutlass.base_dsl.dsl: BaseDSL.generate_original_ir | checks TMA's maps in what is simulated
cutlass.base_dsl.dsl: BaseDSL._func_impl | takes torch's tensors in plain calls, simulated
cutlass.base_dsl.jit_executor: JitCompiledFunction.run_compiled_program JitCompiledFunction.to | where compiled
  functions are run: on the simulator instead
cutlass.cute._tvm_ffi_args_spec_converter: _convert_single_arg _tvm_ffi_args_spec_converter | how a packed entry is to
  be called, and which of its parameters are compiled in
cutlass.base_dsl.tvm_ffi_builder: spec | the types of what a packed entry takes
cutlass.cute.runtime: _Tensor | shows CPU tensors to the tracer as in global memory
cutlass.cute.nvgpu.warpgroup: MmaF8Op._verify | lets an operation of wgmma have types that it refuses: tf32
cutlass.cutlass_dsl: CuTeDSL._get_dsl CuTeDSL.get_arch_enum | the object that traces
cutlass.cutlass_dsl.cuda_jit_executor: CudaDialectJitCompiledFunction.library | the loaded library of a compiled
  function: a served one is given instead
cutlass.cutlass_dsl.tvm_ffi_provider: TVMFFIJitCompiledFunction TVMFFIJitCompiledFunctionWithKwargs | functions compiled
  for TVM-FFI: run on the simulator instead
the object that traces: _tvm_ffi_args_spec_converter | see above
the object that traces: envar._arch jit_cache | compiles for Hopper where there is no GPU
the object that traces: envar.cache_key_str | which of the environment's settings decide what is compiled | every
  setting is in the key of a compiled program, so that a change of one is a miss
a function decorated with @cute.jit: _dsl_object | the object that traces it
what a decorated function's code holds: executor_name | tells kernels from host functions: versions before 4.8 compile a
  kernel as if it were one
a tensor of the DSL's: _assumed_align _dlpack_data | what it promises of its address
"""
"""Rows ``where: names | purpose | loss without them``, of which the last may be missing."""


def _read(table: str) -> tuple[PrivateNames, ...]:
    """Read the names of the table."""
    rows = (row.partition(": ") for row in rows_of(table))
    columns = ((where, *told.split(" | ")) for where, _, told in rows)
    return tuple(PrivateNames(where, tuple(names.split()), *others) for where, names, *others in columns)


PRIVATE_NAMES = _read(_TABLE)
