// What exported extensions use of a torch with CUDA, for a torch without: results in host memory that say they are on
// a GPU, and a function that makes such tensors.
#include <ATen/cuda/EmptyTensor.h>
#include <c10/cuda/CUDAStream.h>

#include <cstdlib>

struct _object;
using PyObject = _object;
PyObject* THPVariable_Wrap(const at::TensorBase& tensor);  // of libtorch_python

namespace {

at::TensorBase on_gpu(at::IntArrayRef shape, at::IntArrayRef strides, at::ScalarType dtype, c10::DeviceIndex index) {
  size_t elements = 1;
  for (size_t i = 0; i < shape.size(); ++i) {
    elements = shape[i] == 0 ? 0 : elements + (shape[i] - 1) * strides[i];
    if (elements == 0) break;
  }
  const size_t bytes = elements * c10::elementSize(dtype);
  // Lives as long as the process: nothing here frees a GPU's memory.
  c10::Storage storage(c10::Storage::use_byte_size_t{}, bytes,
                       at::DataPtr(std::aligned_alloc(64, (bytes + 64) / 64 * 64), at::Device(at::kCUDA, index)));
  at::TensorBase made = at::detail::make_tensor_base<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CUDA), c10::scalarTypeToTypeMeta(dtype));
  made.unsafeGetTensorImpl()->set_sizes_and_strides(shape, strides);
  return made;
}

}  // namespace

namespace c10::cuda {
CUDAStream getCurrentCUDAStream(DeviceIndex index) {
  return CUDAStream(CUDAStream::UNCHECKED, Stream(Stream::DEFAULT, Device(kCUDA, index)));
}
cudaStream_t CUDAStream::stream() const { return reinterpret_cast<cudaStream_t>(0x57); }
}  // namespace c10::cuda

namespace at::detail {
TensorBase empty_strided_cuda(IntArrayRef shape, IntArrayRef strides, ScalarType dtype, std::optional<Device> device) {
  return on_gpu(shape, strides, dtype, device->index());
}
}  // namespace at::detail

extern "C" PyObject* make(int rank, const int64_t* shape, const int64_t* strides, int dtype, int device) {
  const auto count = static_cast<size_t>(rank);
  return THPVariable_Wrap(on_gpu({shape, count}, {strides, count}, static_cast<at::ScalarType>(dtype),
                                 static_cast<c10::DeviceIndex>(device)));
}
