// Device `cuda` of host memory for a CPU build of torch, at the cost to the host that a GPU has.
//
// Allocations, views, streams, and the engine's thread are those of a device with one GPU. Operators that have no kernel
// here are computed by the CPU's, on the same memory. The end is CUDA's runtime, as far as compiled functions call it;
// with the driver of tests/aot/stand_in/driver.c, whose launches do nothing, they run whole.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

namespace {

const c10::Device GPU(c10::DeviceType::CUDA, 0);

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return GPU.type(); }
  c10::Device exchangeDevice(c10::Device) const override { return GPU; }
  c10::Device getDevice() const override { return GPU; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device) const override { return c10::Stream(c10::Stream::DEFAULT, GPU); }
  c10::Stream getDefaultStream(c10::Device) const override { return c10::Stream(c10::Stream::DEFAULT, GPU); }
  c10::Stream exchangeStream(c10::Stream) const override { return c10::Stream(c10::Stream::DEFAULT, GPU); }
  void* getStreamNativeHandle(const c10::Stream) const override { return nullptr; }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  void record(void**, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
  void synchronizeEvent(void*) const override {}
  void synchronizeDevice(const c10::DeviceIndex) const override {}
};
C10_REGISTER_GUARD_IMPL(CUDA, Guard)

struct Hooks final : at::CUDAHooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasCUDA() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  void setCurrentDevice(c10::DeviceIndex) const override {}
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex) const override { return 0; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override { return 0; }
} hooks;

// Torch has made its own, which say that it was not built for CUDA, when it was imported: they get these methods.
const bool installed = [] {
  std::memcpy(const_cast<void*>(static_cast<const void*>(&at::detail::getCUDAHooks())), &hooks, sizeof(void*));
  return true;
}();

struct HostMemory final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* memory = nullptr;
    TORCH_CHECK(!posix_memalign(&memory, 512, bytes ? bytes : 1), "out of memory");
    return {memory, memory, &std::free, GPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &std::free; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
} memory;

const c10::DispatchKeySet KEYS(c10::DispatchKey::CUDA);

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                 std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(size, &memory, KEYS, c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(size, stride, &memory, KEYS, c10::dtype_or_default(dtype));
}

// Tensors of a call, on the host and on the device.
using Pairs = std::vector<std::pair<at::Tensor, at::Tensor>>;

at::Tensor to_host(const at::Tensor& tensor, Pairs& pairs) {
  if (!tensor.defined() || !tensor.is_cuda()) return tensor;
  auto options = tensor.options().device(at::kCPU);
  auto host = tensor.numel() ? at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(), options)
                             : at::empty_strided(tensor.sizes(), tensor.strides(), options);
  pairs.emplace_back(host, tensor);
  return host;
}

at::Tensor on_device(const at::Tensor& tensor) {
  auto options = tensor.options().device(GPU);
  if (!tensor.numel()) return at::empty_strided(tensor.sizes(), tensor.strides(), options);
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(), [tensor](void*) {}, options, GPU);
}

at::Tensor to_device(const at::Tensor& tensor, const Pairs& pairs) {
  if (!tensor.defined()) return tensor;
  for (const auto& [host, device] : pairs) {
    if (!host.is_same(tensor)) continue;
    if (host.sizes() != device.sizes())  // an operator has given its result, which had no elements, its shape
      device.unsafeGetTensorImpl()->shallow_copy_from(on_device(host).getIntrusivePtr());
    return device;
  }
  return on_device(tensor);
}

template <class Move>
void move(c10::IValue& value, const Move& moved) {
  if (value.isTensor()) {
    value = moved(value.toTensor());
  } else if (value.isTensorList()) {
    auto tensors = value.toTensorVector();
    for (auto& each : tensors) each = moved(each);
    value = tensors;
  } else if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> tensors;
    for (const std::optional<at::Tensor>& each : value.toOptionalTensorVector())
      tensors.push_back(each ? std::optional(moved(*each)) : std::nullopt);
    value = tensors;
  }
}

void compute(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  const auto& results = schema.returns();
  const c10::DispatchKeySet host(c10::DispatchKey::CPU);
  const auto* alias = results.empty() ? nullptr : results[0].alias_info();
  if (alias && !alias->isWrite()) return op.redispatchBoxed(host, stack);  // a view
  Pairs pairs;
  bool on_device = false;
  for (auto value = stack->end() - schema.arguments().size(); value != stack->end(); ++value) {
    move(*value, [&](const at::Tensor& each) { return to_host(each, pairs); });
    if (value->isDevice() && value->toDevice().is_cuda()) *value = c10::Device(at::kCPU), on_device = true;
  }
  op.redispatchBoxed(host, stack);
  if (pairs.empty() && !on_device) return;
  for (auto value = stack->end() - results.size(); value != stack->end(); ++value)
    move(*value, [&](const at::Tensor& each) { return to_device(each, pairs); });
}

}  // namespace

TORCH_LIBRARY_IMPL(_, CUDA, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&compute>()); }

TORCH_LIBRARY_IMPL(aten, CUDA, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("as_strided", &at::native::as_strided_tensorimpl);
  m.impl("view", &at::native::view);
  m.impl("_reshape_alias", &at::native::_reshape_alias);
  m.impl("copy_", torch::CppFunction::makeFromBoxedFunction<&compute>());
}

extern "C" {
int cudaSetDevice(int) { return 0; }
int cudaGetDevice(int* device) { return *device = 0; }
int cudaFuncSetAttribute(void*, int, int) { return 0; }
int cuCtxGetCurrent(void** context) {
  *context = &memory;
  return 0;
}
int cuCtxSynchronize() { return 0; }
int cuStreamSynchronize(void*) { return 0; }
}
