// The entry point of the library: it makes the operators known to a session of ONNX Runtime.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>

#include "operators.h"

namespace lingon {

namespace {

void check(const Api& api, OrtStatus* status) {
  if (status == nullptr) return;
  const std::string message = api.message_of(status);
  api.release_status(status);
  throw Refusal(message);
}

Tensor tensor_of(const Api& api, const OrtValue* value) {
  Tensor found;
  if (value == nullptr) return found;
  const int64_t* dims = nullptr;
  size_t rank = 0;
  check(api, api.shape_of(value, &found.type, &dims, &rank));
  found.dims = Dims(dims, rank);
  check(api, api.data_of(const_cast<OrtValue*>(value), &found.data));
  return found;
}

// Run an action; return its error as a status that names the operator.
template <typename Action>
OrtStatus* as_status(const Api& api, const char* name, const Action& action) {
  try {
    action();
    return nullptr;
  } catch (const std::exception& error) {
    const bool refused = dynamic_cast<const Refusal*>(&error);
    char message[512];  // there may be no memory for a string
    std::snprintf(message, sizeof message, "lingon.%s %s%s", name, refused ? "" : "could not allocate memory: ",
                  error.what());
    return api.create_status(refused ? kInvalidArgument : kFailure, message);
  }
}

// An operator as ONNX Runtime knows it. The base must come first.
struct Registered : OrtCustomOp {
  OperatorKind kind;
};

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

Registered registered(const OperatorKind& kind) {
  Registered made{};
  made.kind = kind;
  made.version = kApiVersion;
  made.name = [](const OrtCustomOp* op) { return kind_of(op).name; };
  made.provider = [](const OrtCustomOp*) -> const char* { return nullptr; };  // the CPU
  made.input_count = [](const OrtCustomOp* op) { return kind_of(op).inputs.size(); };
  made.input_type = [](const OrtCustomOp* op, size_t index) { return kind_of(op).inputs[index]; };
  made.input_arity = [](const OrtCustomOp* op, size_t index) {
    return index < kind_of(op).required_inputs ? Arity::kRequired : Arity::kOptional;
  };
  made.input_memory = [](const OrtCustomOp*, size_t) { return 0; };
  made.output_count = [](const OrtCustomOp* op) { return kind_of(op).outputs.size(); };
  made.output_type = [](const OrtCustomOp* op, size_t index) { return kind_of(op).outputs[index]; };
  made.output_arity = [](const OrtCustomOp*, size_t) { return Arity::kRequired; };
  made.create_kernel_or_status = create;
  made.compute_or_status = compute;
  made.destroy = [](void* kernel) { delete (Kernel*)kernel; };
  made.first_version = [](const OrtCustomOp*) { return 1; };
  made.last_version = [](const OrtCustomOp*) { return std::numeric_limits<int>::max(); };
  return made;
}

}  // namespace

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

void RunContext::run_parts(void (*body)(void*, size_t), size_t parts, void* data) const {
  if (helpers_in_use() && run_with_helpers(body, parts, data)) return;
  check(api_, api_.run_parts(context_, body, parts, 0, data));
}

// Null if LINGON_KERNELS names kernels that the processor does not have. The variable is read once: it may change
// later.
static const Kernels* chosen_kernels() {
  static const Kernels* const chosen = kernels_named(std::getenv("LINGON_KERNELS"));
  return chosen;
}

const Kernels& kernels() { return *chosen_kernels(); }

static const std::vector<Registered>& operators() {
  static const std::vector<Registered> made = [] {
    std::vector<Registered> all;
    for (const auto& kinds : {product_kinds(), attention_kinds(), sentence_kinds(), embedding_kinds(),
                              candidate_kinds(), beam_kinds()})
      for (const OperatorKind& kind : kinds) all.push_back(registered(kind));
    return all;
  }();
  return made;
}

// The operators as one domain for all sessions, which refer to it until the process ends.
static OrtCustomOpDomain* domain_of(const Api& api) {
  static OrtCustomOpDomain* const made = [&] {
    OrtCustomOpDomain* domain = nullptr;
    check(api, api.create_domain("lingon", &domain));
    for (const Registered& each : operators()) check(api, api.add_operator(domain, &each));
    return domain;
  }();
  return made;
}

}  // namespace lingon

extern "C" {

__attribute__((visibility("default"))) lingon::OrtStatus* RegisterCustomOps(lingon::OrtSessionOptions* options,
                                                                            const lingon::OrtApiBase* base) {
  const lingon::Api* api = base->get_api(lingon::kApiVersion);
  if (api == nullptr) return nullptr;  // the session then refuses the operators
  return lingon::as_status(*api, "RegisterCustomOps", [&] {
    lingon::require(lingon::chosen_kernels(), "got a LINGON_KERNELS that names kernels this processor does not have");
    lingon::check(*api, api->add_domain(options, lingon::domain_of(*api)));
  });
}

// The name of the instruction set of the operators.
__attribute__((visibility("default"))) const char* lingon_kernels_name() {
  const lingon::Kernels* found = lingon::chosen_kernels();
  return found ? found->name : "";
}

// See use_helpers.
__attribute__((visibility("default"))) void lingon_kernels_use_helpers(int count) { lingon::use_helpers(count); }
}
