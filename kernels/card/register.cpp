// The entry points of the library of operators for cards.
#include <string>

#include "../registration.h"
#include "images.h"
#include "operators.h"

namespace lingon::card {
namespace {

constexpr const char* kCuda = "CUDAExecutionProvider";

std::vector<Registered> operators_for(const char* provider) {
  std::vector<Registered> all;
  for (const auto& kinds : {product_kinds(), embedding_kinds(), attention_kinds(), memory_kinds(), step_kinds()})
    for (const OperatorKind& kind : kinds) all.push_back(registered(kind, provider));
  return all;
}

// The operators of a provider as one domain for all sessions, which refer to it until the process ends.
OrtCustomOpDomain* domain_on_card(const Api& api) {
  static const std::vector<Registered> operators = operators_for(kCuda);
  static OrtCustomOpDomain* const made = make_domain(api, operators);
  return made;
}

OrtCustomOpDomain* domain_on_cpu(const Api& api) {
  static const std::vector<Registered> operators = operators_for(nullptr);
  static OrtCustomOpDomain* const made = make_domain(api, operators);
  return made;
}

OrtStatus* add_to(OrtSessionOptions* options, const OrtApiBase* base, OrtCustomOpDomain* (*domain)(const Api&)) {
  const Api* api = base->get_api(kApiVersion);
  if (api == nullptr) return nullptr;  // the session then refuses the operators
  return as_status(*api, "RegisterCustomOps", [&] { check(*api, api->add_domain(options, domain(*api))); });
}

std::string& last_error() {
  thread_local std::string error;
  return error;
}

}  // namespace
}  // namespace lingon::card

extern "C" {

__attribute__((visibility("default"))) lingon::OrtStatus* RegisterCustomOps(lingon::OrtSessionOptions* options,
                                                                            const lingon::OrtApiBase* base) {
  return lingon::card::add_to(options, base, lingon::card::domain_on_card);
}

// The same operators for the CPU: tests run them with a driver of their own, which works in main memory.
__attribute__((visibility("default"))) lingon::OrtStatus* RegisterCardOpsOnCpu(lingon::OrtSessionOptions* options,
                                                                               const lingon::OrtApiBase* base) {
  return lingon::card::add_to(options, base, lingon::card::domain_on_cpu);
}

// Keep the image (cubin or PTX) of a kernel. parameters: p pointer, i int32, f float32, in the order of its arguments;
// shared: bytes of dynamic shared memory. Returns 0, or 1 if it is refused: see lingon_card_error.
__attribute__((visibility("default"))) int lingon_card_add_kernel(const char* name, const void* image, size_t size,
                                                                  const char* parameters, int warps, int shared) {
  try {
    lingon::card::last_error().clear();
    lingon::add_image(name, image, size, parameters, warps, shared);
    return 0;
  } catch (const std::exception& error) {
    lingon::card::last_error() = error.what();
    return 1;
  }
}

// Why the last call of this thread was refused, or "".
__attribute__((visibility("default"))) const char* lingon_card_error() {
  return lingon::card::last_error().c_str();
}

// Forget all images. Sessions keep what they have loaded.
__attribute__((visibility("default"))) void lingon_card_clear() { lingon::forget_images(); }
}
