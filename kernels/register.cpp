// The entry point of the library: it makes the operators known to a session of ONNX Runtime.
#include <cstdlib>

#include "mapped.h"
#include "registration.h"

namespace lingon {

// Not in registration.cpp: the library of cards has no helpers.
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
                              candidate_kinds(), beam_kinds(), cell_kinds()})
      for (const OperatorKind& kind : kinds) all.push_back(registered(kind, nullptr));
    return all;
  }();
  return made;
}

// The operators as one domain for all sessions, which refer to it until the process ends.
static OrtCustomOpDomain* domain_of(const Api& api) {
  static OrtCustomOpDomain* const made = make_domain(api, operators());
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

// See add_mapped; null: forget_mapped.
__attribute__((visibility("default"))) void lingon_kernels_add_mapped(const void* begin, int64_t bytes) {
  if (begin)
    lingon::add_mapped(begin, bytes);
  else
    lingon::forget_mapped();
}
}
