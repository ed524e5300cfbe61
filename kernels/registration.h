// How operators are made known to ONNX Runtime, for the library of the CPU and for that of cards.
#pragma once

#include <vector>

#include "operators.h"

namespace lingon {

// An operator as ONNX Runtime knows it. The base must come first.
struct Registered : OrtCustomOp {
  OperatorKind kind;
  const char* where;  // its provider; null is the CPU
};

Registered registered(const OperatorKind& kind, const char* provider);

// A new domain `lingon` with these operators, which must live until the process ends.
OrtCustomOpDomain* make_domain(const Api& api, const std::vector<Registered>& operators);

// Refusal with the message of a status that is not a success.
void check(const Api& api, OrtStatus* status);

// An error as a status that names the operator.
OrtStatus* status_of(const Api& api, const char* name, const std::exception& error);

// Run an action; return its error as such a status.
template <typename Action>
OrtStatus* as_status(const Api& api, const char* name, const Action& action) {
  try {
    action();
    return nullptr;
  } catch (const std::exception& error) {
    return status_of(api, name, error);
  }
}

}  // namespace lingon
