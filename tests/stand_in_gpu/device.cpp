// A stand-in for a GPU: a device of the type CUDA whose memory is the host's, and whose operations
// the CPU computes.  See __init__.py for what it shows and what it does not.
//
// Torch without CUDA has nothing registered for this type of device.  Here it gets an allocator, a
// device guard and the hooks that say that it is there; views and factories of its own; and for all
// other operations torch's fallback, which refuses operands of two devices, copies the others to
// the CPU, computes, and copies back.

#include <cstdlib>
#include <cstring>
#include <string>
#include <unordered_set>

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/stack.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

namespace {

constexpr c10::DeviceType kind = c10::DeviceType::CUDA;

struct HostAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t nbytes) override {
    void* data = nbytes ? std::malloc(nbytes) : nullptr;
    return {data, data, &std::free, c10::Device(kind, 0)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &std::free; }
  void copy_data(void* to, const void* from, size_t count) const override {
    std::memcpy(to, from, count);
  }
};

HostAllocator allocator;

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kind; }
  c10::Device exchangeDevice(c10::Device) const override { return c10::Device(kind, 0); }
  c10::Device getDevice() const override { return c10::Device(kind, 0); }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device) const override {
    return c10::Stream(c10::Stream::DEFAULT, c10::Device(kind, 0));
  }
  c10::Stream getNewStream(c10::Device, int) const override { return getStream(c10::Device(kind, 0)); }
  c10::Stream exchangeStream(c10::Stream) const override { return getStream(c10::Device(kind, 0)); }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  void record(void** event, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {
    *event = reinterpret_cast<void*>(1);
  }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, c10::DeviceIndex) const noexcept override {}
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
  void synchronizeEvent(void*) const override {}
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}
};

C10_REGISTER_GUARD_IMPL(CUDA, Guard);

struct CUDAHooks : at::CUDAHooksInterface {
  explicit CUDAHooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  bool isPinnedPtr(const void*) const override { return false; }
};

using at::CUDAHooksRegistry;
using at::RegistererCUDAHooksRegistry;
REGISTER_CUDA_HOOKS(CUDAHooks)

constexpr c10::DispatchKeySet keys{c10::DispatchKey::CUDA};

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                 std::optional<at::Device>, std::optional<bool>,
                 std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(size, &allocator, keys, c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef strides,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                         std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(size, strides, &allocator, keys, c10::dtype_or_default(dtype));
}

// The same memory as a tensor of the CPU.
at::Tensor on_host(const at::Tensor& x) {
  if (x.is_cpu()) return x;
  auto bytes = x.storage().nbytes();
  auto storage = c10::Storage(c10::Storage::use_byte_size_t(), bytes,
      c10::DataPtr(x.storage().mutable_data(), c10::Device(c10::kCPU)), nullptr, false);
  auto host = at::empty({0}, x.options().device(c10::kCPU));
  host.set_(storage, x.storage_offset(), x.sizes(), x.strides());
  if (x.is_conj()) host = at::_conj(host);
  if (x.is_neg()) host = at::_neg_view(host);
  return host;
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool) {
  auto target = on_host(to);
  target.copy_(on_host(from));
  return to;
}

at::Tensor& copy_(at::Tensor& to, const at::Tensor& from, bool) {
  copy_from(from, to, false);
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  if (to.sizes() != from.sizes()) const_cast<at::Tensor&>(to).resize_(from.sizes());
  return copy_from(from, to, false);
}

at::Scalar local_scalar(const at::Tensor& x) { return on_host(x).item(); }

const at::Tensor& resize_(const at::Tensor& x, at::IntArrayRef size,
                          std::optional<at::MemoryFormat> format) {
  auto* impl = x.unsafeGetTensorImpl();
  int64_t count = c10::multiply_integers(size);
  size_t bytes = (count + x.storage_offset()) * x.itemsize();
  auto* storage = x.storage().unsafeGetStorageImpl();
  if (bytes > storage->nbytes()) {
    auto fresh = allocator.allocate(bytes);
    if (storage->nbytes()) std::memcpy(fresh.get(), storage->data(), storage->nbytes());
    storage->set_data_ptr_noswap(std::move(fresh));
    storage->set_nbytes(bytes);
  }
  impl->set_sizes_contiguous(size);
  if (format.has_value()) impl->empty_tensor_restride(*format);
  return x;
}

at::Tensor& set_storage(at::Tensor& x, at::Storage source, int64_t offset, at::IntArrayRef size,
                        at::IntArrayRef stride) {
  x.unsafeGetTensorImpl()->set_storage_keep_dtype(std::move(source));
  x.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride, offset);
  return x;
}

at::Tensor& set_all(at::Tensor& x, at::Storage source) {
  int64_t count = source.nbytes() / x.itemsize();
  return set_storage(x, std::move(source), 0, {count}, {1});
}

at::Tensor& set_tensor(at::Tensor& x, const at::Tensor& source) {
  return set_storage(x, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

at::Tensor& set_nothing(at::Tensor& x) {
  auto none = c10::Storage(c10::Storage::use_byte_size_t(), 0, allocator.allocate(0), &allocator, true);
  return set_storage(x, none, 0, {0}, {1});
}

// CUDA has no products of integers (no matrices, no convolutions).
void refuse_integers(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  static const std::unordered_set<std::string> products{
      "aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm", "aten::addbmm", "aten::mv", "aten::addmv",
      "aten::dot", "aten::vdot", "aten::convolution_overrideable", "aten::_addmm_activation",
      "aten::_slow_conv2d_forward", "aten::slow_conv_dilated2d", "aten::slow_conv_dilated3d",
      "aten::slow_conv_transpose2d", "aten::slow_conv_transpose3d", "aten::slow_conv3d_forward",
      "aten::_conv_depthwise2d", "aten::conv_depthwise3d"};
  if (!products.count(op.schema().name())) return;
  for (const auto& argument : torch::jit::last(stack, op.schema().arguments().size())) {
    TORCH_CHECK(!(argument.isTensor() && argument.toTensor().defined() &&
                  at::isIntegralType(argument.toTensor().scalar_type(), true)),
                op.schema().name(), " is not implemented for integers on cuda");
  }
}

void on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  refuse_integers(op, *stack);
  at::native::cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(_, CUDA, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&on_cpu>()); }

TORCH_LIBRARY_IMPL(aten, CUDA, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("as_strided", at::native::as_strided_tensorimpl);
  m.impl("view", at::native::view);
  m.impl("_reshape_alias", at::native::_reshape_alias);
  m.impl("unfold", at::native::unfold);
  m.impl("view_as_real", at::native::view_as_real);
  m.impl("view_as_complex", at::native::view_as_complex);
  m.impl("copy_", copy_);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("_local_scalar_dense", local_scalar);
  m.impl("resize_", resize_);
  m.impl("set_.source_Storage_storage_offset", set_storage);
  m.impl("set_.source_Storage", set_all);
  m.impl("set_.source_Tensor", set_tensor);
  m.impl("set_", set_nothing);
}

const bool allocates = [] {
  c10::SetAllocator(kind, &allocator);
  return true;
}();

}  // namespace
