#include "cases.h"

#include <cmath>
#include <functional>
#include <limits>

#include "../operators.h"

namespace lingon {

uint64_t Random::bits() {
  uint64_t mixed = state_ += 0x9e3779b97f4a7c15u;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
  return mixed ^ (mixed >> 31);
}

int64_t Random::between(int64_t least, int64_t most) {
  return least + (int64_t)(bits() % (uint64_t)(most - least + 1));
}

int64_t place_in_panels(const BlockLayout& layout, int64_t by_groups) {
  const int64_t block = by_groups / kBlockBytes, place = by_groups % kBlockBytes;
  const int64_t group = place / kByGroups.group, output = place % kByGroups.group / kByGroups.output;
  return block * kBlockBytes + group * layout.group + output * layout.output + place % kByGroups.output;
}

namespace {

constexpr int64_t kHuge = int64_t{1} << 40;

float special(Random& random) {
  using Limits = std::numeric_limits<float>;
  const float values[] = {0.0f,
                          -0.0f,
                          1.0f,
                          -1.0f,
                          Limits::denorm_min(),
                          -Limits::min(),
                          Limits::max(),
                          -Limits::max(),
                          1e20f,
                          -1e20f,
                          1e-30f,
                          88.0f,
                          -88.0f,
                          Limits::infinity(),
                          -Limits::infinity(),
                          Limits::quiet_NaN()};
  return values[random.between(0, 15)];
}

// Rows of one style each: plain, constant, tiny, huge, or with special values.
Value floats(Random& random, std::vector<int64_t> dims) {
  auto made = std::make_shared<OrtValue>(ElementType::kFloat, dims);
  const int64_t columns = dims.empty() || dims.back() == 0 ? 1 : dims.back();
  for (int64_t place = 0, style = 0; place < made->size(); ++place) {
    if (place % columns == 0) style = random.chance(70) ? 0 : random.between(1, 4);
    const float plain = (float)(random.between(-(1 << 20), 1 << 20)) / (1 << 18);
    const float styled[] = {plain, 3.5f, plain * 1e-38f, plain * 5e37f, random.chance(20) ? special(random) : plain};
    made->as<float>()[place] = styled[style];
  }
  return made;
}

// Any bits: NaN, infinity and denormals are among them.
Value halves(Random& random, std::vector<int64_t> dims) {
  auto made = std::make_shared<OrtValue>(ElementType::kFloat16, dims);
  const bool any = random.chance(20);
  for (int64_t place = 0; place < made->size(); ++place) {
    const uint64_t plain = random.between(0x2c00, 0x4400) | random.bits() << 15;
    made->as<uint16_t>()[place] = (uint16_t)(any ? random.bits() : plain);
  }
  return made;
}

Value numbers(Random& random, std::vector<int64_t> dims, bool narrow) {
  return narrow ? halves(random, dims) : floats(random, dims);
}

template <typename T>
Value integers(ElementType type, std::vector<int64_t> dims, const std::function<int64_t()>& draw) {
  auto made = std::make_shared<OrtValue>(type, dims);
  for (int64_t place = 0; place < made->size(); ++place) made->as<T>()[place] = (T)draw();
  return made;
}

Value int64s(std::vector<int64_t> dims, const std::function<int64_t()>& draw) {
  return integers<int64_t>(ElementType::kInt64, dims, draw);
}

Value weights(Random& random, std::vector<int64_t> dims) {
  const bool extreme = random.chance(30);
  return integers<int8_t>(ElementType::kInt8, dims,
                          [&] { return extreme ? (random.chance(90) ? 63 : -63) : random.between(-63, 63); });
}

// Mostly small; sometimes enough for several threads, or a tail of a vector or a panel.
int64_t size(Random& random, int64_t most) {
  return random.chance(90) ? random.between(1, most) : random.between(1, 4 * most);
}

// The last inputs of a product, if it has them.
void add_norm_and_residual(Random& random, Case& made, int64_t norm, int64_t inputs, std::vector<int64_t> result) {
  const bool residual = random.chance(40);
  if (norm > 0 || residual) {
    made.info.inputs.push_back(norm > 0 ? floats(random, {inputs}) : nullptr);
    made.info.inputs.push_back(norm == 1 ? floats(random, {inputs}) : nullptr);
  }
  if (residual) made.info.inputs.push_back(floats(random, result));
}

Case linear(Random& random) {
  const int64_t inputs = random.chance(25) ? 64 * random.between(1, 3) : size(random, 70);  // AMX takes multiples of 64
  const int64_t outputs = size(random, 70), rows = random.chance(5) ? 0 : size(random, 20);
  const int64_t norm = random.between(0, 2);
  Case made{"Linear", {{{"epsilon", 1e-5f}}, {{"norm", norm}, {"relu", random.between(0, 1)}}, {}, 1, 6}, {}};
  made.info.inputs = {floats(random, {rows, inputs}), weights(random, {inputs, outputs}), floats(random, {outputs}),
                      floats(random, {outputs})};
  add_norm_and_residual(random, made, norm, inputs, {rows, outputs});
  return made;
}

Case float_linear(Random& random) {
  const int64_t inputs = size(random, 70), outputs = size(random, 70), rows = random.chance(5) ? 0 : size(random, 20);
  const int64_t norm = random.between(0, 2);
  Case made{"FloatLinear", {{{"epsilon", 1e-5f}}, {{"norm", norm}, {"relu", random.between(0, 1)}}, {}, 1, 5}, {}};
  made.info.inputs = {floats(random, {rows, inputs}), numbers(random, {outputs, inputs}, random.chance(50)),
                      floats(random, {outputs})};
  add_norm_and_residual(random, made, norm, inputs, {rows, outputs});
  return made;
}

Case gather_columns(Random& random) {
  const int64_t inputs = size(random, 40), outputs = size(random, 70), count = random.between(0, 50);
  Case made{"GatherColumns", {{}, {}, {}, 1, 4}, {}};
  made.info.inputs = {int64s({count}, [&] { return random.between(0, outputs - 1); }),
                      weights(random, {inputs, outputs}), floats(random, {outputs}), floats(random, {outputs})};
  return made;
}

Case packed_linear(Random& random) {
  const int64_t inputs = size(random, 70), outputs = random.between(0, 70), rows = size(random, 20);
  const int64_t bytes = (inputs + 7) / 8 * 8 * 16;
  const int64_t norm = random.between(0, 2);
  Case made{"PackedLinear", {{{"epsilon", 1e-5f}}, {{"norm", norm}}, {}, 5, 7}, {}};
  const Value drawn = weights(random, {(outputs + 15) / 16, bytes});
  const auto panels = std::make_shared<OrtValue>(ElementType::kInt8, drawn->dims);
  const Value sums = integers<int32_t>(ElementType::kInt32, {outputs}, [] { return 0; });
  for (int64_t place = 0; place < panels->size(); ++place) {
    const int64_t output = place / bytes * 16 + place / 4 % 16, input = place % bytes / 64 * 4 + place % 4;
    int8_t& weight = panels->as<int8_t>()[place_in_panels(kernels().layout, place)];
    weight = input < inputs ? drawn->as<int8_t>()[place] : 0;  // as GatherColumns writes them: NEON subtracts the sums
    if (output < outputs) sums->as<int32_t>()[output] += weight;
  }
  made.info.inputs = {floats(random, {rows, inputs}), panels, sums, floats(random, {outputs}),
                      floats(random, {outputs})};
  if (norm > 0) made.info.inputs.push_back(floats(random, {inputs}));
  if (norm == 1) made.info.inputs.push_back(floats(random, {inputs}));
  return made;
}

Case float_gather_columns(Random& random) {
  const int64_t inputs = size(random, 40), outputs = size(random, 70), count = random.between(0, 50);
  Case made{"FloatGatherColumns", {{}, {}, {}, 1, 3}, {}};
  made.info.inputs = {int64s({count}, [&] { return random.between(0, outputs - 1); }),
                      numbers(random, {outputs, inputs}, random.chance(50)), floats(random, {outputs})};
  return made;
}

Case float_packed_linear(Random& random) {
  const int64_t inputs = size(random, 70), outputs = random.between(0, 70), rows = size(random, 20);
  const int64_t norm = random.between(0, 2);
  Case made{"FloatPackedLinear", {{{"epsilon", 1e-5f}}, {{"norm", norm}}, {}, 3, 5}, {}};
  made.info.inputs = {floats(random, {rows, inputs}), floats(random, {(outputs + 15) / 16, inputs * 16}),
                      floats(random, {outputs})};
  if (norm > 0) made.info.inputs.push_back(floats(random, {inputs}));
  if (norm == 1) made.info.inputs.push_back(floats(random, {inputs}));
  return made;
}

Case attention(const char* op, int64_t heads) { return {op, {{{"scale", 0.25f}}, {{"heads", heads}}, {}, 0, 0}, {}}; }

Case step_attention_of(Random& random, bool narrow) {
  const int64_t heads = random.between(1, 4), width = 8 * random.between(1, 9), rows = random.between(0, 9);
  const int64_t capacity = size(random, 40);
  Case made = attention(narrow ? "StepAttention" : "StepAttention32", heads);
  const std::vector<int64_t> cache = {rows, heads, capacity, width};
  made.info.inputs = {floats(random, {rows, 3 * heads * width}), numbers(random, cache, narrow),
                      numbers(random, cache, narrow), int64s({rows}, [&] { return random.between(0, capacity - 1); })};
  if (random.chance(50)) {
    made.info.inputs.push_back(integers<int32_t>(ElementType::kInt32, {rows, capacity}, [] { return 0; }));
    for (int64_t place = 0; place < rows * capacity; ++place)
      made.info.inputs.back()->as<int32_t>()[place] = (int32_t)(random.between(0, rows - 1) - place / capacity);
  }
  if (random.chance(50)) made.in_place = {{1, 1}, {2, 2}};
  return made;
}

Case step_attention(Random& random) { return step_attention_of(random, true); }
Case step_attention_32(Random& random) { return step_attention_of(random, false); }

Case cross_attention(Random& random) {
  const int64_t heads = random.between(1, 4), size_of_head = 8 * random.between(1, 9), sentences = random.between(0, 5);
  const int64_t width = size(random, 40), rows = sentences * random.between(0, 4);
  const bool narrow = random.chance(50);
  Case made = attention("CrossAttention", heads);
  made.info.inputs = {floats(random, {rows, heads * size_of_head}),
                      numbers(random, {sentences, heads, size_of_head, width}, narrow),
                      numbers(random, {sentences, heads, width, size_of_head}, narrow),
                      int64s({sentences}, [&] { return random.between(1, width); })};
  if (random.chance(50)) {
    made.info.inputs.push_back(int64s({random.between(1, heads)}, [&] { return random.between(0, heads - 1); }));
    made.info.first_constant = 4, made.info.last_constant = 5;
  }
  return made;
}

int64_t sum(const OrtValue& lengths) {
  int64_t total = 0;
  for (int64_t place = 0; place < lengths.size(); ++place) total += lengths.as<int64_t>()[place];
  return total;
}

Case self_attention(Random& random) {
  const int64_t heads = random.between(1, 4), width = 8 * random.between(1, 5);
  const Value lengths = int64s({random.between(0, 5)}, [&] { return size(random, 20); });
  Case made = attention("SelfAttention", heads);
  if (random.chance(40)) made.info.integers = {{"heads", heads}, {"causal", 1}, {"narrow", random.between(0, 1)}};
  made.info.inputs = {floats(random, {sum(*lengths), 3 * heads * width}), lengths};
  return made;
}

Case tokens(Random& random) {
  const int64_t sentences = random.between(0, 6), width = size(random, 20);
  Case made{"Tokens", {{}, {}, {}, 0, 0}, {}};
  made.info.inputs = {int64s({sentences, width}, [&] { return (int64_t)random.bits(); }),
                      int64s({sentences}, [&] { return random.between(1, width); })};
  return made;
}

Case memory_of(Random& random, const char* op) {
  const int64_t sentences = random.between(0, 5), width = size(random, 20), heads = random.between(1, 4);
  const int64_t layers = random.between(1, 4), dim = heads * random.between(1, 17);
  const Value lengths = int64s({sentences}, [&] { return random.between(1, width); });
  Case made{
      op, {{}, {{"heads", heads}, {"layers", layers}, {"layer", random.between(0, layers - 1)}}, {}, 0, 0}, {}};
  made.info.inputs = {floats(random, {sum(*lengths), layers * 2 * dim}), int64s({sentences, width}, [] { return 0; }),
                      lengths};
  return made;
}

Case memory(Random& random) { return memory_of(random, "Memory"); }
Case memory_32(Random& random) { return memory_of(random, "Memory32"); }

Case candidates(Random& random) {
  const int64_t sentences = random.between(0, 5), rows = sentences * random.between(1, 4), columns = size(random, 300);
  Case made{"Candidates", {{}, {}, {}, 0, 0}, {}};
  made.info.inputs = {floats(random, {rows, columns}),
                      int64s({1}, [&] { return random.between(1, std::min<int64_t>(columns, 256)); })};
  if (random.chance(50)) {
    const int64_t percent = random.between(0, 100);
    made.info.inputs.push_back(int64s({columns}, [&] { return random.between(0, 99999); }));
    made.info.inputs.push_back(
        integers<bool>(ElementType::kBool, {sentences, columns}, [&] { return random.chance((int)percent); }));
  }
  return made;
}

Case embed(Random& random) {
  const int64_t vocab = size(random, 50), dim = size(random, 40), parts = random.between(0, 3),
                part = random.between(1, 9);
  Case made{"Embed", {{{"scale", 8.0f}}, {}, {}, 1, 4}, {}};
  made.info.inputs = {int64s({parts * part}, [&] { return random.between(0, vocab - 1); }),
                      floats(random, {vocab, dim})};
  if (random.chance(50))
    made.info.inputs[1] =
        integers<uint16_t>(ElementType::kFloat16, {vocab, dim}, [&] { return random.between(0, 65535); });
  if (random.chance(60)) {
    const int64_t length = size(random, 20);
    made.info.inputs.push_back(int64s({part}, [&] { return random.between(0, length - 1); }));
    made.info.inputs.push_back(floats(random, {length, dim}));
  }
  return made;
}

Case beam_step(Random& random) {
  const int64_t sentences = random.between(0, 4), beams = random.between(1, random.chance(90) ? 6 : 128);
  const int64_t capacity = size(random, 12), candidates = random.between(2, 2 * beams), rows = sentences * beams;
  Case made{"BeamStep", {{}, {{"end", 2}}, {}, 0, 0}, {}};
  const auto token = [&] { return random.between(0, 9); };
  const auto log_prob = [&](std::vector<int64_t> dims) {
    const Value value = floats(random, dims);
    for (int64_t place = 0; place < value->size(); ++place)
      if (!(value->as<float>()[place] <= 0) && random.chance(95))
        value->as<float>()[place] = random.chance(90) ? -1.0f : -INFINITY;
    return value;
  };
  const Value positions = int64s({rows}, [] { return 0; }), order = int64s({sentences, beams}, [] { return 0; });
  for (int64_t row = 0; row < rows; ++row) {
    order->as<int64_t>()[row] = (row + row / beams) % beams;
    positions->as<int64_t>()[row] =
        row % beams == 0 ? random.between(0, capacity - 1) : positions->as<int64_t>()[row - 1];
  }
  made.info.inputs = {int64s({rows, candidates}, token),
                      log_prob({rows, candidates}),
                      int64s({rows}, token),
                      positions,
                      order,
                      log_prob({sentences, beams}),
                      int64s({sentences, beams, capacity}, token),
                      log_prob({sentences, beams, capacity}),
                      integers<int32_t>(ElementType::kInt32, {rows, capacity}, [&] { return random.between(-9, 9); })};
  if (random.chance(50))
    for (size_t place = 0; place < 7; ++place) made.in_place[place] = place + 2;
  return made;
}

Case step_cell(Random& random) {
  const int64_t rows = size(random, 20), dim = size(random, 70);
  Case made{"StepCell", {{}, {}, {}, 0, 0}, {}};
  made.info.inputs = {floats(random, {rows, 2 * dim}), floats(random, {rows, dim})};
  if (random.chance(50)) made.info.inputs.push_back(floats(random, {rows, dim}));
  if (random.chance(50)) made.in_place[1] = 1;
  return made;
}

const std::map<std::string, Case (*)(Random&)> kDraw = {{"Embed", embed},
                                                        {"StepCell", step_cell},
                                                        {"BeamStep", beam_step},
                                                        {"Linear", linear},
                                                        {"FloatLinear", float_linear},
                                                        {"GatherColumns", gather_columns},
                                                        {"PackedLinear", packed_linear},
                                                        {"FloatGatherColumns", float_gather_columns},
                                                        {"FloatPackedLinear", float_packed_linear},
                                                        {"StepAttention", step_attention},
                                                        {"StepAttention32", step_attention_32},
                                                        {"CrossAttention", cross_attention},
                                                        {"SelfAttention", self_attention},
                                                        {"Tokens", tokens},
                                                        {"Memory", memory},
                                                        {"Memory32", memory_32},
                                                        {"Candidates", candidates}};

// Give a tensor other dimensions, and values that fit its type.
Value reshaped(Random& random, const OrtValue& value, std::vector<int64_t> dims) {
  const int64_t size = elements_of(dims);
  if (size < 0 || size > (1 << 20)) dims.assign(dims.size(), 1);
  if (value.type == ElementType::kFloat) return floats(random, dims);
  auto made = std::make_shared<OrtValue>(value.type, dims);
  if (made->data)
    std::memset(made->data.get(), value.type == ElementType::kInt8 ? 1 : 0, made->size() * size_of(value.type));
  return made;
}

void spoil_shape(Random& random, Value& value) {
  std::vector<int64_t> dims = value->dims;
  const int64_t kind = random.between(0, 4);
  if (kind == 0) dims.push_back(random.between(0, 2));
  if (kind == 1) dims.insert(dims.begin(), random.between(1, 7), 1);
  if (dims.empty()) return;
  const size_t place = random.between(0, dims.size() - 1);
  const int64_t changes[] = {0, dims[place] + 1, std::max<int64_t>(dims[place] - 1, 0), 2 * dims[place]};
  if (kind == 2) dims[place] = changes[random.between(0, 3)];
  if (kind == 3) dims.pop_back();
  if (kind == 4) {  // absurd, without elements
    for (int64_t& dim : dims) dim = random.chance(50) ? kHuge : dim;
    dims[place] = 0;
  }
  value = reshaped(random, *value, dims);
}

int64_t absurd(Random& random) {
  const int64_t values[] = {-1,
                            0,
                            1,
                            2,
                            3,
                            65536,
                            65537,
                            int64_t{1} << 31,
                            int64_t{1} << 32,
                            int64_t{1} << 61,
                            int64_t{1} << 62,
                            INT64_MAX,
                            INT64_MAX - 1,
                            INT64_MIN,
                            INT64_MIN + 1,
                            8};
  return values[random.between(0, 15)];
}

}  // namespace

std::vector<std::string> known_operators() {
  std::vector<std::string> names;
  for (const auto& each : kDraw) names.push_back(each.first);
  return names;
}

Case draw_case(Random& random, const std::string& op) { return kDraw.at(op)(random); }

void spoil(Random& random, Case& drawn) {
  OrtKernelInfo& info = drawn.info;
  Value& value = info.inputs[random.between(0, info.inputs.size() - 1)];
  const int64_t kind = random.between(0, 9);
  if (kind == 0 && !info.integers.empty()) {
    std::next(info.integers.begin(), random.between(0, info.integers.size() - 1))->second = absurd(random);
  } else if (kind == 1) {
    info.inputs.resize(random.between(0, info.inputs.size()));
  } else if (kind == 2) {
    info.last_constant = 0;
  } else if (kind <= 5 && value && value->size() > 0) {
    const int64_t place = random.between(0, value->size() - 1);
    if (value->type == ElementType::kInt64) value->as<int64_t>()[place] = absurd(random);
    if (drawn.op != "PackedLinear") {  // it reads what GatherColumns has checked: the sums are those of the weights
      if (value->type == ElementType::kInt32) value->as<int32_t>()[place] = (int32_t)absurd(random);
      if (value->type == ElementType::kInt8) value->as<int8_t>()[place] = (int8_t)random.between(-127, 127);
    }
    if (value->type == ElementType::kFloat) value->as<float>()[place] = special(random);
  } else if (kind <= 8 && value) {
    spoil_shape(random, value);
    // PackedLinear may take the shape: weights and sums of 0 agree.
    if (drawn.op == "PackedLinear" && (value == info.inputs[1] || value == info.inputs[2]))
      for (const Value& each : {info.inputs[1], info.inputs[2]})
        if (each->data) std::memset(each->data.get(), 0, each->size() * size_of(each->type));
  } else {
    value = nullptr;
  }
  for (auto& [output, input] : std::map<size_t, size_t>(drawn.in_place))
    if (input >= info.inputs.size() || !info.inputs[input]) drawn.in_place.erase(output);
}

}  // namespace lingon
