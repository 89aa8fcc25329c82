"""Host code of CUDA C++: a shared library that nvcc made, whose calls of the CUDA runtime are served here."""

from cutepy.frontends.cuda_runtime.library import CudaLibrary as CudaLibrary, load_cuda_library as load_cuda_library

__all__ = ["CudaLibrary", "load_cuda_library"]
