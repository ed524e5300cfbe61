// The operators for cards. They have the names of those for the CPU, and float16 in place of float32.
#pragma once

#include "../operators.h"

namespace lingon::card {

std::vector<OperatorKind> product_kinds();    // FloatLinear, Choose, ChooseWithLogits
std::vector<OperatorKind> embedding_kinds();  // Embed
std::vector<OperatorKind> attention_kinds();  // StepAttention, CrossAttention, SelfAttention
std::vector<OperatorKind> memory_kinds();     // PlaceMemory
std::vector<OperatorKind> step_kinds();       // GreedyStep, BeamStep

}  // namespace lingon::card
