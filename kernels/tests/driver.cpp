// Runs every operator on random nodes, sound and spoilt, without ONNX Runtime: driver SEED CASES [SECONDS].
//
// It fails if a product of 8-bit integers is not exact, if a result depends on the number of threads or helpers, or on
// other nodes that run at the same time, if a refusal is not one line that names the operator, if an allocation that
// fails ends the process, and if memory is left over. Sanitizers see the rest. It prints a digest of all results, which
// is the same for every instruction set: `kernels/tests/run.py` compares them.
#include <chrono>
#include <cmath>

#include "../helpers.h"
#include "../operators.h"
#include "../weights.h"
#include "cases.h"

extern "C" lingon::OrtStatus* RegisterCustomOps(lingon::OrtSessionOptions*, const lingon::OrtApiBase*);
extern "C" const char* lingon_kernels_name();

static std::atomic<int64_t> blocks_in_use{0};

// Fails where a test wants it; malloc keeps the checks of sanitizers.
__attribute__((noinline)) void* operator new(size_t size) {
  using namespace lingon;
  if (sheltered == 0 && allocations_left >= 0 && allocations_left.fetch_sub(1) <= 0) {
    allocations_left = 0;
    throw std::bad_alloc();
  }
  if (void* made = std::malloc(size ? size : 1)) {
    ++blocks_in_use;
    return made;
  }
  throw std::bad_alloc();
}
__attribute__((noinline)) void operator delete(void* memory) noexcept {
  blocks_in_use -= memory != nullptr;
  std::free(memory);
}
__attribute__((noinline)) void operator delete(void* memory, size_t) noexcept { operator delete(memory); }

namespace lingon {
namespace {

const std::map<std::string, const OrtCustomOp*>& operators() {
  static const auto found = registered_operators(RegisterCustomOps);
  return found;
}

[[noreturn]] void fail(const Case& drawn, const std::string& what) {
  std::fprintf(stderr, "%s: %s\n", drawn.op.c_str(), what.c_str());
  for (const Value& value : drawn.info.inputs) {
    std::fprintf(stderr, "  input");
    for (size_t place = 0; value && place < value->dims.size(); ++place)
      std::fprintf(stderr, " %lld", (long long)value->dims[place]);
    std::fprintf(stderr, value ? "\n" : " missing\n");
  }
  for (const auto& [name, number] : drawn.info.integers)
    std::fprintf(stderr, "  %s %lld\n", name.c_str(), (long long)number);
  std::exit(1);
}

// FNV-1a of outputs; every NaN counts as the same.
struct Digest {
  uint64_t hash = 14695981039346656037u;

  void add(const void* bytes, size_t size) {
    for (size_t place = 0; place < size; ++place) hash = (hash ^ ((const uint8_t*)bytes)[place]) * 1099511628211u;
  }
  void add(const OrtValue& value) {
    add(value.dims.data(), value.dims.size() * sizeof(int64_t));
    for (int64_t place = 0; place < value.size(); ++place) {
      const char* at = value.as<char>() + place * size_of(value.type);
      const bool broken = (value.type == ElementType::kFloat && std::isnan(*(const float*)at)) ||
                          (value.type == ElementType::kFloat16 && (*(const uint16_t*)at & 0x7fff) > 0x7c00);
      const int64_t nan = -1;  // all bits: NaN of either type
      add(broken ? (const char*)&nan : at, size_of(value.type));
    }
  }
};

struct Result {
  std::string refusal;  // empty if there is none
  uint64_t digest;
};

std::string message_of(OrtStatus* status) {
  const std::string message = status->message;
  delete status;
  return message;
}

Value copy_of(const Value& value) {
  auto made = std::make_shared<OrtValue>(value->type, value->dims);
  if (made->data) std::memcpy(made->data.get(), value->data.get(), value->size() * size_of(value->type));
  return made;
}

// Panels in the layout that most instruction sets have, so that all have one digest.
Value by_groups(const OrtValue& panels) {
  auto made = std::make_shared<OrtValue>(panels.type, panels.dims);
  for (int64_t place = 0; place < panels.size(); ++place)
    made->as<int8_t>()[place] = panels.as<int8_t>()[place_in_panels(kernels().layout, place)];
  return made;
}

// Run a node; `failing` is the allocation of the operator that fails, or -1.
Result run(const Case& drawn, int threads, int failing = -1) {
  const OrtCustomOp* op = operators().at(drawn.op);
  OrtKernelContext context{op, drawn.info.inputs, std::vector<Value>(op->output_count(op)), threads};
  for (const auto& [output, input] : drawn.in_place)
    context.inputs[input] = context.outputs[output] = copy_of(drawn.info.inputs[input]);
  void* kernel = nullptr;
  OrtStatus* status = op->create_kernel_or_status(op, fake_api(), &drawn.info, &kernel);
  if (status) return {message_of(status), 0};
  allocations_left = failing;
  status = op->compute_or_status(kernel, &context);
  allocations_left = -1;
  op->destroy(kernel);
  if (status) return {message_of(status), 0};
  if (drawn.op == "GatherColumns") context.outputs[0] = by_groups(*context.outputs[0]);
  Digest digest;
  for (const Value& value : context.outputs)
    if (value) digest.add(*value);  // CrossAttention without heads has one output
  return {"", digest.hash};
}

// ONNX Runtime refuses a node without an input that is required, before the operator is made.
bool has_required_inputs(const Case& drawn) {
  const OrtCustomOp* op = operators().at(drawn.op);
  for (size_t place = 0; place < op->input_count(op); ++place)
    if (op->input_arity(op, place) == Arity::kRequired &&
        (place >= drawn.info.inputs.size() || !drawn.info.inputs[place]))
      return false;
  return true;
}

Case draw(uint64_t seed, uint64_t number, bool spoilt) {
  Random random(seed * 1000003 + number);
  const auto names = known_operators();
  for (;;) {
    Case drawn = draw_case(random, names[number % names.size()]);
    if (spoilt) spoil(random, drawn);
    if (has_required_inputs(drawn)) return drawn;
  }
}

void check_refusal(const Case& drawn, const Result& found) {
  const bool named = found.refusal.rfind("lingon." + drawn.op + " ", 0) == 0;
  if (!named || found.refusal.find('\n') != std::string::npos) fail(drawn, "unclear refusal: " + found.refusal);
}

// Returns what is added to the digest of all cases.
uint64_t check(uint64_t seed, uint64_t number) {
  const bool spoilt = number % 3 == 2;
  const Case drawn = draw(seed, number, spoilt);
  const Result alone = run(drawn, 1), together = run(drawn, 4);
  if (alone.refusal != together.refusal || alone.digest != together.digest) fail(drawn, "threads change the result");
  use_helpers(1 + (int)(number % 3));
  const Result helped = run(drawn, 1);
  use_helpers(0);
  if (alone.refusal != helped.refusal || alone.digest != helped.digest) fail(drawn, "helpers change the result");
  if (!alone.refusal.empty() && !spoilt) fail(drawn, "refuses a sound node: " + alone.refusal);
  if (!alone.refusal.empty()) check_refusal(drawn, alone);
  if (number % 7 == 0 && alone.refusal.empty())
    for (int failing = 0; failing < 3; ++failing) {
      use_helpers(failing);
      const Result found = run(drawn, 3, failing);
      use_helpers(0);
      if (!found.refusal.empty()) check_refusal(drawn, found);
      if (found.refusal.empty() && found.digest != alone.digest) fail(drawn, "a failed allocation changes the result");
    }
  return alone.digest;
}

void check_product(Random& random, int64_t count, int64_t inputs, int64_t outputs) {
  const int64_t stride = padded_inputs(inputs);
  AlignedVector<uint8_t> values(count * stride, 0);  // zeros at the ends, as the kernels quantise a row
  std::vector<int8_t> columns(inputs * outputs);
  std::vector<RowScale> scales(count);
  for (int64_t row = 0; row < count; ++row) {
    const bool largest = random.chance(25);
    scales[row] = {1.0f, (int32_t)random.between(0, kMostLevel)};
    for (int64_t input = 0; input < inputs; ++input)
      values[row * stride + input] = (uint8_t)(largest ? kMostLevel : random.between(0, kMostLevel));
  }
  for (int64_t output = 0; output < outputs; ++output) {
    const int64_t least = random.chance(25) ? kMostWeight : -kMostWeight;
    const int64_t most = random.chance(25) ? least : kMostWeight;
    for (int64_t input = 0; input < inputs; ++input)
      columns[input * outputs + output] = (int8_t)random.between(least, most);
  }
  const auto packed = pack(columns.data(), inputs, outputs);
  const std::vector<float> scale(outputs, 1.0f), bias(outputs, 0.0f);
  const Weights weights{packed->panels.data(),
                        packed->order.empty() ? nullptr : packed->order.data(),
                        packed->fours.data(),
                        packed->sums.data(),
                        scale.data(),
                        bias.data(),
                        inputs,
                        outputs};
  std::vector<float> found(count * outputs);
  const Rows rows{values.data(), scales.data(), count};
  kernels().product(rows, weights, 0, panels_of(outputs), {found.data(), nullptr, false});
  for (int64_t row = 0; row < count; ++row)
    for (int64_t output = 0; output < outputs; ++output) {
      int32_t sum = 0;
      for (int64_t input = 0; input < inputs; ++input)
        sum += (values[row * stride + input] - scales[row].zero) * columns[input * outputs + output];
      if (found[row * outputs + output] == (float)sum) continue;
      std::fprintf(stderr, "product of %lld rows, %lld inputs, %lld outputs: row %lld, output %lld is %.0f, not %d\n",
                   (long long)count, (long long)inputs, (long long)outputs, (long long)row, (long long)output,
                   found[row * outputs + output], sum);
      std::exit(1);
    }
}

// Products of every number of rows that a tile may have, and more, with every end of a block and of a panel: each is
// the sum that integers give. The values and weights are the largest in some rows and columns.
void check_products(uint64_t seed) {
  Random random(seed);
  for (int64_t inputs : {1, 2, 3, 4, 5, 7, 8, 9, 12, 13, 16, 23, 64, 128, 65536})
    for (int64_t outputs : {1, 2, 3, 8, 15, 16, 17, 31, 33, 64, 79})
      for (int64_t count = 1; count <= (inputs < kMostInputs ? 19 : 3); ++count)
        check_product(random, count, inputs, outputs);
}

// Nodes that run at the same time share packed weights and helpers, and nothing else.
void check_sessions(uint64_t seed, uint64_t cases) {
  std::vector<uint64_t> expected;
  for (uint64_t number = 0; number < cases; ++number) expected.push_back(run(draw(seed, number, false), 1).digest);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 3; ++thread)
    threads.emplace_back([&, seed] {
      use_helpers(2);
      for (uint64_t number = 0; number < cases; ++number) {
        const Case drawn = draw(seed, number, false);
        if (run(drawn, 2).digest != expected[number]) fail(drawn, "other nodes change the result");
      }
    });
  for (std::thread& each : threads) each.join();
}

// Nodes that are gone leave no memory behind; what is known of the last weights is free with the next ones.
void check_memory(uint64_t seed, uint64_t cases) {
  constexpr int64_t kOfLastWeights = 6;  // two blocks for each type
  const auto run_all = [cases](uint64_t seed) {
    for (uint64_t number = 0; number < cases; ++number) run(draw(seed, number, false), 1);
    return blocks_in_use.load();
  };
  const int64_t before = run_all(seed), after = run_all(seed + 1);
  if (after - before > kOfLastWeights) {
    std::fprintf(stderr, "%lld blocks of memory are left over\n", (long long)(after - before));
    std::exit(1);
  }
}

int main_of(uint64_t seed, uint64_t cases, double seconds) {
  for (const auto& each : operators()) {
    bool known = false;
    for (const std::string& name : known_operators()) known = known || name == each.first;
    if (!known) {
      std::fprintf(stderr, "lingon.%s has no random nodes: add them to kernels/tests/cases.cpp\n", each.first.c_str());
      return 1;
    }
  }
  const auto begin = std::chrono::steady_clock::now();
  Digest all;
  uint64_t done = 0;
  for (; done < cases; ++done) {
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
    if (seconds > 0 && spent.count() > seconds) break;
    const uint64_t found = check(seed, done);
    all.add(&found, sizeof found);
    if (std::getenv("DRIVER_PRINTS"))
      std::printf("%llu %016llx\n", (unsigned long long)done, (unsigned long long)found);
  }
  if (cases > 0) check_products(seed);
  check_sessions(seed, cases < 90 ? cases : 90);
  check_memory(seed, cases < 300 ? cases : 300);
  std::printf("%s: %llu nodes, digest %016llx\n", lingon_kernels_name(), (unsigned long long)done,
              (unsigned long long)all.hash);
  return 0;
}

}  // namespace
}  // namespace lingon

int main(int count, char** arguments) {
  if (count < 3) {
    std::fprintf(stderr, "usage: driver SEED CASES [SECONDS]\n");
    return 2;
  }
  const double seconds = count > 3 ? std::atof(arguments[3]) : 0;
  return lingon::main_of(std::strtoull(arguments[1], nullptr, 10), std::strtoull(arguments[2], nullptr, 10), seconds);
}
