// See registration.h: what ONNX Runtime asks of an operator, and what an operator sees of a node and of its runs.
#include "registration.h"

#include <cstdio>
#include <limits>
#include <string>

namespace lingon {

void check(const Api& api, OrtStatus* status) {
  if (status == nullptr) return;
  const std::string message = api.message_of(status);
  api.release_status(status);
  throw Refusal(message);
}

static Tensor tensor_of(const Api& api, const OrtValue* value) {
  Tensor found;
  if (value == nullptr) return found;
  const int64_t* dims = nullptr;
  size_t rank = 0;
  check(api, api.shape_of(value, &found.type, &dims, &rank));
  found.dims = Dims(dims, rank);
  check(api, api.data_of(const_cast<OrtValue*>(value), &found.data));
  return found;
}

OrtStatus* status_of(const Api& api, const char* name, const std::exception& error) {
  const bool refused = dynamic_cast<const Refusal*>(&error), failed = dynamic_cast<const Failure*>(&error);
  const char* between = refused ? " " : failed ? ": " : " could not allocate memory: ";
  char message[512];  // there may be no memory for a string
  std::snprintf(message, sizeof message, "lingon.%s%s%s", name, between, error.what());
  return api.create_status(refused ? kInvalidArgument : kFailure, message);
}

namespace {

struct Kernel {
  const Api& api;
  const char* name;
  std::unique_ptr<Operator> made;
};

const OperatorKind& kind_of(const OrtCustomOp* op) { return static_cast<const Registered*>(op)->kind; }

OrtStatus* create(const OrtCustomOp* op, const Api* api, const OrtKernelInfo* info, void** kernel) {
  const OperatorKind& kind = kind_of(op);
  return as_status(*api, kind.name, [&] {
    size_t inputs = 0;
    check(*api, api->input_count(info, &inputs));
    *kernel = new Kernel{*api, kind.name, kind.make(NodeInfo(*api, info), inputs)};
  });
}

OrtStatus* compute(void* kernel, OrtKernelContext* context) {
  const Kernel& found = *(const Kernel*)kernel;
  return as_status(found.api, found.name, [&] { found.made->run(RunContext(found.api, context)); });
}

}  // namespace

Registered registered(const OperatorKind& kind, const char* provider) {
  Registered made{};
  made.kind = kind;
  made.where = provider;
  made.version = kApiVersion;
  made.name = [](const OrtCustomOp* op) { return kind_of(op).name; };
  made.provider = [](const OrtCustomOp* op) { return static_cast<const Registered*>(op)->where; };
  made.input_count = [](const OrtCustomOp* op) { return kind_of(op).inputs.size(); };
  made.input_type = [](const OrtCustomOp* op, size_t index) { return kind_of(op).inputs[index]; };
  made.input_arity = [](const OrtCustomOp* op, size_t index) {
    return index < kind_of(op).required_inputs ? Arity::kRequired : Arity::kOptional;
  };
  made.input_memory = [](const OrtCustomOp* op, size_t index) {
    return kind_of(op).host_input == (int)index ? kHostInput : kDeviceMemory;
  };
  made.output_count = [](const OrtCustomOp* op) { return kind_of(op).outputs.size(); };
  made.output_type = [](const OrtCustomOp* op, size_t index) { return kind_of(op).outputs[index]; };
  made.output_arity = [](const OrtCustomOp* op, size_t index) {
    return index + kind_of(op).optional_outputs < kind_of(op).outputs.size() ? Arity::kRequired : Arity::kOptional;
  };
  made.create_kernel_or_status = create;
  made.compute_or_status = compute;
  made.destroy = [](void* kernel) { delete (Kernel*)kernel; };
  made.first_version = [](const OrtCustomOp*) { return 1; };
  made.last_version = [](const OrtCustomOp*) { return std::numeric_limits<int>::max(); };
  return made;
}

float NodeInfo::number(const char* name) const {
  float value = 0;
  check(api_, api_.float_attribute(info_, name, &value));
  return value;
}

int64_t NodeInfo::integer(const char* name) const {
  int64_t value = 0;
  check(api_, api_.integer_attribute(info_, name, &value));
  return value;
}

int64_t NodeInfo::integer(const char* name, int64_t otherwise) const {
  int64_t value = otherwise;
  if (OrtStatus* status = api_.integer_attribute(info_, name, &value)) {
    api_.release_status(status);
    return otherwise;
  }
  return value;
}

Tensor NodeInfo::constant(size_t index) const {
  int constant = 0;
  const OrtValue* value = nullptr;
  check(api_, api_.constant_input(info_, index, &constant, &value));
  require(constant && value, "expects constant weights");
  return tensor_of(api_, value);
}

bool NodeInfo::constant_dims(size_t index, Dims* dims) const {
  int constant = 0;
  const OrtValue* value = nullptr;
  if (OrtStatus* status = api_.constant_input(info_, index, &constant, &value)) {
    api_.release_status(status);
    return false;
  }
  if (!constant || !value) return false;
  *dims = tensor_of(api_, value).dims;
  return true;
}

ScratchAllocator::ScratchAllocator(const NodeInfo& info) : api_(info.api_) {
  check(api_, api_.allocator_of(info.info_, kDeviceMemory, &allocator_));
}

ScratchAllocator::~ScratchAllocator() { api_.release_allocator(allocator_); }

void* ScratchAllocator::allocate(size_t bytes) const {
  void* made = nullptr;
  check(api_, api_.allocate(allocator_, bytes, &made));
  require(made != nullptr || bytes == 0, "got no scratch memory from its provider");
  return made;
}

void ScratchAllocator::release(void* memory) const noexcept {
  if (OrtStatus* status = api_.free(allocator_, memory)) api_.release_status(status);
}

Tensor RunContext::input(size_t index) const {
  const OrtValue* value = nullptr;
  check(api_, api_.input(context_, index, &value));
  return tensor_of(api_, value);
}

Tensor RunContext::output(size_t index, const Dims& dims) const {
  OrtValue* value = nullptr;
  check(api_, api_.output(context_, index, dims.data(), dims.rank(), &value));
  return tensor_of(api_, value);
}

void* RunContext::stream() const {
  void* found = nullptr;
  check(api_, api_.gpu_stream(context_, &found));
  return found;
}

OrtCustomOpDomain* make_domain(const Api& api, const std::vector<Registered>& operators) {
  OrtCustomOpDomain* domain = nullptr;
  check(api, api.create_domain("lingon", &domain));
  for (const Registered& each : operators) check(api, api.add_operator(domain, &each));
  return domain;
}

}  // namespace lingon
