// GreedyStep and BeamStep: what a step of a search writes for the next one. The search is that of
// lingon.serving.decoding, to the last bit.
#include "launch.h"
#include "names.h"
#include "operators.h"

namespace lingon::card {
namespace {

// What a step writes besides the next tokens, positions and step is in the memory of its inputs: several steps follow
// one another in one graph, where no output of a node in the middle can be there.
constexpr int64_t kMostCandidatesOfRow = 2 * kMostSearched;
constexpr int64_t kMostSteps = 1 << 16;  // of a history, and positions of a cache

// Inputs: candidate ids (rows, candidates) int64 and their log-probabilities; tokens (rows) and positions (rows) int64;
// a history (steps, rows, 2) of tokens and log-probabilities, which is written; and the step (1) int64 of it that is
// next. Outputs: the next tokens, positions and step, which may be in the memory of the inputs.
class GreedyStep : public Operator {
 public:
  GreedyStep(const NodeInfo&, size_t) { functions_.load("greedy_step"); }

  void run(const RunContext& context) const override {
    const Tensor ids = context.input(0), log_probs = context.input(1);
    require_rank("candidates", ids, 2);
    require_dims("log-probabilities", log_probs, ids.dims);
    const Tensor tokens = context.input(2), positions = context.input(3), history = context.input(4);
    const Tensor step = context.input(5);
    const int64_t rows = ids.dims[0], candidates = ids.dims[1];
    require_rank("a history", history, 3);
    const int64_t steps = history.dims[0];
    require_dims("tokens", tokens, {rows});
    require_dims("positions", positions, {rows});
    require_dims("a history", history, {steps, rows, 2});
    require_dims("a step", step, {1});
    const Tensor next_tokens = context.output(0, {rows}), next_positions = context.output(1, {rows});
    const Tensor next_step = context.output(2, {1});
    if (rows == 0) return;
    require_between("candidates", candidates, 1, kMostCandidatesOfRow);
    require_between("steps of a history", steps, 1, kMostSteps);
    Launch(functions_["greedy_step"])
        .pointer("candidates", ids)
        .pointer("log-probabilities", log_probs)
        .pointer("tokens", tokens)
        .pointer("positions", positions)
        .pointer("a history", history)
        .pointer("a step", step)
        .pointer("the next tokens", next_tokens)
        .pointer("the next positions", next_positions)
        .pointer("the next step", next_step)
        .integer("rows", rows)
        .integer("candidates", candidates)
        .integer("steps of a history", steps)
        .over(context, 1);
  }

 private:
  Functions functions_;
};

// Inputs: candidate ids (rows, candidates) int64 and their log-probabilities; tokens (rows) and positions (rows) int64;
// then what is written: rows (sentences, beams) int64, the row of each rank, totals (sentences, beams), the table
// (rows, capacity) int32, a log of candidates (steps, rows, candidates) int64 and of their log-probabilities; and the
// step (1) int64 of the log that is next. Outputs: the next tokens, positions and step, which may be in the memory of
// the inputs. Attribute: end, the end token.
class BeamStep : public Operator {
 public:
  BeamStep(const NodeInfo& info, size_t) : end_(info.integer("end")) {
    for (int64_t beams = 2; beams <= kMostSearched; beams *= 2) functions_.load(beam_step_kernel(beams, 2));
    functions_.load("advance_step");
  }

  void run(const RunContext& context) const override {
    const Tensor ids = context.input(0), log_probs = context.input(1);
    const Tensor tokens = context.input(2), positions = context.input(3), rows_of_ranks = context.input(4);
    const Tensor totals = context.input(5), table = context.input(6), log_ids = context.input(7);
    const Tensor log_values = context.input(8), step = context.input(9);
    require_rank("candidates", ids, 2);
    require_dims("log-probabilities", log_probs, ids.dims);
    require_rank("rows of ranks", rows_of_ranks, 2);
    require_rank("a table", table, 2);
    require_rank("a log", log_ids, 3);
    const int64_t sentences = rows_of_ranks.dims[0], beams = rows_of_ranks.dims[1], candidates = ids.dims[1];
    require_between("beams", beams, 1, kMostSearched);
    const int64_t rows = sentences * beams, capacity = table.dims[1], steps = log_ids.dims[0];
    require_dims("candidates", ids, {rows, candidates});
    require_dims("tokens", tokens, {rows});
    require_dims("positions", positions, {rows});
    require_dims("totals", totals, rows_of_ranks.dims);
    require_dims("a table", table, {rows, capacity});
    require_dims("a log", log_ids, {steps, rows, candidates});
    require_dims("a log of log-probabilities", log_values, log_ids.dims);
    require_dims("a step", step, {1});
    const Tensor next_tokens = context.output(0, {rows}), next_positions = context.output(1, {rows});
    const Tensor next_step = context.output(2, {1});
    if (rows == 0) return;
    require_between("candidates", candidates, 2, kMostCandidatesOfRow);
    require_between("steps of a log", steps, 1, kMostSteps);
    require_between("a capacity", capacity, 1, kMostSteps);
    Launch(functions_[beam_step_kernel(beams, candidates)])
        .pointer("candidates", ids)
        .pointer("log-probabilities", log_probs)
        .pointer("tokens", tokens)
        .pointer("positions", positions)
        .pointer("rows of ranks", rows_of_ranks)
        .pointer("totals", totals)
        .pointer("a table", table)
        .pointer("a log", log_ids)
        .pointer("a log of log-probabilities", log_values)
        .pointer("a step", step)
        .pointer("the next tokens", next_tokens)
        .pointer("the next positions", next_positions)
        .integer("sentences", sentences)
        .integer("beams", beams)
        .integer("candidates", candidates)
        .integer("a capacity", capacity)
        .integer("steps of a log", steps)
        .integer("the end token", end_)
        .over(context, sentences);
    // Not in the same kernel: its programs read the step in any order.
    Launch(functions_["advance_step"])
        .pointer("a step", step)
        .pointer("the next step", next_step)
        .integer("steps of a log", steps)
        .over(context, 1);
  }

 private:
  int64_t end_;
  Functions functions_;
};

}  // namespace

std::vector<OperatorKind> step_kinds() {
  const ElementType number = ElementType::kFloat, integer = ElementType::kInt64, small = ElementType::kInt32;
  return {{"GreedyStep",
           {integer, number, integer, integer, number, integer},
           {integer, integer, integer},
           6,
           make<GreedyStep>},
          {"BeamStep",
           {integer, number, integer, integer, integer, number, small, integer, number, integer},
           {integer, integer, integer},
           10,
           make<BeamStep>}};
}

}  // namespace lingon::card
