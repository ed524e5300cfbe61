// BeamStep: one step of beam search for every sentence of a running batch.
//
// The search is that of lingon.serving.decoding.beam, to the last bit. No past is copied: a table says which row
// holds each position of a row's past.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "operators.h"

namespace lingon {
namespace {

constexpr int64_t kMostBeams = kMostCandidates / 2;

struct Continuation {
  float total, log_prob;
  int64_t parent, token;  // the rank of the hypothesis that is continued, and its next token
};

// The best continuations, the best one first; among equal ones the one that came first.
class Ranking {
 public:
  explicit Ranking(int64_t size) : size_(size) {}

  void insert(const Continuation& added) {
    if (count_ == size_ && !(added.total > best_[count_ - 1].total)) return;
    int64_t place = count_ < size_ ? count_++ : count_ - 1;
    for (; place > 0 && added.total > best_[place - 1].total; --place) best_[place] = best_[place - 1];
    best_[place] = added;
  }
  const Continuation& operator[](int64_t place) const { return best_[place]; }
  int64_t count() const { return count_; }

 private:
  Continuation best_[2 * kMostBeams];
  int64_t size_, count_ = 0;
};

// The arrays of one sentence.
struct Sentence {
  int64_t beams, candidates, capacity;
  const int64_t* ids;      // (beams, candidates) by row
  const float* log_probs;  // the same
  int64_t* tokens;         // (beams), the next token of each row
  int64_t* positions;      // (beams), equal ones
  int64_t* rows;           // (beams), the row of each rank
  float* totals;           // (beams), the log-probability of each rank
  int64_t* history;        // (beams, capacity) by row: the tokens so far
  float* history_log_probs;
  int32_t* table;  // (beams, capacity) by row: how many rows further each position of the past is
  bool* ended;     // (beams) by place in the ranking, and so are the next three
  float* ended_totals;
  int64_t* ended_tokens;   // (beams, capacity)
  float* ended_log_probs;  // (beams, capacity), that of the end token too
  int32_t* ended_table;    // (beams, capacity), the row of each position, that of the end token too; or null
};

bool has_nan(const Sentence& sentence) {
  const float* end = sentence.log_probs + sentence.beams * sentence.candidates;
  return std::any_of(sentence.log_probs, end, [](float value) { return std::isnan(value); });
}

Ranking ranking(const Sentence& sentence) {
  Ranking found(2 * sentence.beams);
  for (int64_t rank = 0; rank < sentence.beams; ++rank) {
    const int64_t first = sentence.rows[rank] * sentence.candidates;
    for (int64_t place = first; place < first + sentence.candidates; ++place) {
      const float log_prob = sentence.log_probs[place];
      found.insert({sentence.totals[rank] + log_prob, log_prob, rank, sentence.ids[place]});
    }
  }
  return found;
}

// Write the hypotheses that end and rank within the beam.
void write_ended(const Sentence& sentence, const Ranking& ranked, int64_t end_token) {
  const int64_t steps = sentence.positions[0];
  for (int64_t place = 0; place < sentence.beams; ++place) {
    const Continuation& each = ranked[place];
    sentence.ended[place] = each.token == end_token && each.total > -std::numeric_limits<float>::infinity();
    if (!sentence.ended[place]) continue;
    const int64_t from = sentence.rows[each.parent] * sentence.capacity, to = place * sentence.capacity;
    std::copy_n(sentence.history + from, steps, sentence.ended_tokens + to);
    std::copy_n(sentence.history_log_probs + from, steps, sentence.ended_log_probs + to);
    sentence.ended_log_probs[to + steps] = each.log_prob;
    sentence.ended_totals[place] = each.total;
    if (!sentence.ended_table) continue;
    const int32_t row = (int32_t)sentence.rows[each.parent];
    for (int64_t position = 0; position <= steps; ++position)
      sentence.ended_table[to + position] = row + sentence.table[from + position];
  }
}

// Let row `to` continue the past of row `from`, whose newest position is that of this step.
void copy_past(const Sentence& sentence, int64_t from, int64_t to) {
  const int64_t steps = sentence.positions[0], source = from * sentence.capacity, target = to * sentence.capacity;
  std::copy_n(sentence.history + source, steps, sentence.history + target);
  std::copy_n(sentence.history_log_probs + source, steps, sentence.history_log_probs + target);
  for (int64_t position = 0; position <= steps; ++position)
    sentence.table[target + position] = (int32_t)((int64_t)sentence.table[source + position] + from - to);
}

// Give each survivor a row: the first child of a parent has that of the parent, the others those of hypotheses without
// children, so that no row is both read and overwritten.
void assign_rows(const Sentence& sentence, const Continuation* survivors, int64_t* assigned) {
  bool has_child[kMostBeams] = {};
  for (int64_t rank = 0; rank < sentence.beams; ++rank) has_child[survivors[rank].parent] = true;
  bool is_taken[kMostBeams] = {};
  int64_t childless = 0;
  for (int64_t rank = 0; rank < sentence.beams; ++rank) {
    const int64_t parent = survivors[rank].parent;
    assigned[rank] = sentence.rows[parent];
    if (is_taken[parent]) {
      while (has_child[childless]) ++childless;
      assigned[rank] = sentence.rows[childless++];
      copy_past(sentence, sentence.rows[parent], assigned[rank]);
    }
    is_taken[parent] = true;
  }
}

// The best continuations that do not end. There are enough, since at most one continuation of a parent ends, but for
// parents without other continuations: then those that end follow, whose log-probability is -inf.
void select_survivors(const Ranking& ranked, int64_t beams, int64_t end_token, Continuation* survivors) {
  int64_t count = 0;
  for (const bool ends : {false, true})
    for (int64_t place = 0; place < ranked.count() && count < beams; ++place)
      if ((ranked[place].token == end_token) == ends) survivors[count++] = ranked[place];
}

void advance(const Sentence& sentence, int64_t end_token) {
  const Ranking ranked = ranking(sentence);
  write_ended(sentence, ranked, end_token);
  Continuation survivors[kMostBeams];
  select_survivors(ranked, sentence.beams, end_token, survivors);
  int64_t assigned[kMostBeams];
  assign_rows(sentence, survivors, assigned);
  const int64_t steps = sentence.positions[0];
  for (int64_t rank = 0; rank < sentence.beams; ++rank) {
    const int64_t row = assigned[rank];
    sentence.rows[rank] = row;
    sentence.totals[rank] = survivors[rank].total;
    sentence.tokens[row] = sentence.history[row * sentence.capacity + steps] = survivors[rank].token;
    sentence.history_log_probs[row * sentence.capacity + steps] = survivors[rank].log_prob;
  }
  std::fill_n(sentence.positions, sentence.beams, steps + 1);
}

// Inputs: candidate ids and log-probabilities (rows, candidates); then what a step changes: tokens and positions (rows)
// int64, rows (sentences, beams) int64, totals (sentences, beams), history (sentences, beams, capacity) int64, its
// log-probabilities, and the table (rows, capacity) int32.
// Outputs: the seven that change, which may be in the memory of the inputs; ended (sentences, beams) bool, their
// totals, tokens and log-probabilities, see Sentence; failed (sentences) bool, sentences with NaN, which stay as they
// are; and optionally the rows of the ended ones (sentences, beams, capacity) int32: which row of its sentence holds
// each position. Attribute: end, the end token.
class BeamStep : public Operator {
 public:
  BeamStep(const NodeInfo& info, size_t) : end_(info.integer("end")) {}

  void run(const RunContext& context) const override {
    const Tensor ids = context.input(0), log_probs = context.input(1);
    Tensor changed[7];
    for (size_t index = 0; index < 7; ++index) changed[index] = context.input(2 + index);
    const Dims& dims = changed[4].dims;
    require(dims.rank() == 3 && ids.rank() == 2 && ids.dims == log_probs.dims, "expects candidates and a history");
    const int64_t sentences = dims[0], beams = dims[1], capacity = dims[2], candidates = ids.dims[1];
    require(0 < beams && beams <= kMostBeams && candidates >= 2, "expects 1 to 128 beams of two candidates");
    const Dims by_row{sentences * beams}, by_rank{sentences, beams};
    require(ids.dims[0] == by_row[0] && changed[0].dims == by_row && changed[1].dims == by_row,
            "expects a token for each row");
    require(changed[2].dims == by_rank && changed[3].dims == by_rank && changed[5].dims == dims,
            "expects a total for each beam");
    require(changed[6].dims == Dims({sentences * beams, capacity}), "expects a table for its rows");
    for (size_t index = 0; index < 7; ++index) changed[index] = written(context, index, changed[index]);
    // Not before: a graph may bind an output to the memory of another input, which is then overwritten.
    check_places(changed[1], changed[2], sentences, beams, capacity);
    const Tensor ended = context.output(7, by_rank), totals = context.output(8, by_rank);
    const Tensor tokens = context.output(9, dims), token_log_probs = context.output(10, dims);
    bool* failed = context.output(11, {sentences}).as<bool>();
    const Tensor table = context.output(12, dims);
    for (int64_t each = 0; each < sentences; ++each) {
      const int64_t row = each * beams, long_row = row * capacity;
      const Sentence sentence{beams,
                              candidates,
                              capacity,
                              ids.as<int64_t>() + row * candidates,
                              log_probs.as<float>() + row * candidates,
                              changed[0].as<int64_t>() + row,
                              changed[1].as<int64_t>() + row,
                              changed[2].as<int64_t>() + row,
                              changed[3].as<float>() + row,
                              changed[4].as<int64_t>() + long_row,
                              changed[5].as<float>() + long_row,
                              changed[6].as<int32_t>() + long_row,
                              ended.as<bool>() + row,
                              totals.as<float>() + row,
                              tokens.as<int64_t>() + long_row,
                              token_log_probs.as<float>() + long_row,
                              table.given() ? table.as<int32_t>() + long_row : nullptr};
      std::fill_n(sentence.ended, beams, false);
      failed[each] = has_nan(sentence);
      if (!failed[each]) advance(sentence, end_);
    }
  }

 private:
  static void check_places(const Tensor& positions, const Tensor& rows, int64_t sentences, int64_t beams,
                           int64_t capacity) {
    const int64_t *at = positions.as<int64_t>(), *row = rows.as<int64_t>();
    for (int64_t each = 0; each < sentences * beams; ++each) {
      require(0 <= at[each] && at[each] < capacity && at[each] == at[each / beams * beams],
              "got a position beyond the capacity, or another one than that of the other beams");
      require(0 <= row[each] && row[each] < beams, "got a row that its sentence does not have");
    }
  }

  static Tensor written(const RunContext& context, size_t index, const Tensor& before) {
    const Tensor after = context.output(index, before.dims);
    const int64_t size = before.type == ElementType::kInt64 ? sizeof(int64_t) : sizeof(float);
    if (after.data != before.data && before.size() > 0) std::memcpy(after.data, before.data, before.size() * size);
    return after;
  }

  int64_t end_;
};

}  // namespace

std::vector<OperatorKind> beam_kinds() {
  const ElementType number = ElementType::kFloat, integer = ElementType::kInt64, small = ElementType::kInt32;
  const ElementType flag = ElementType::kBool;
  return {{"BeamStep",
           {integer, number, integer, integer, integer, number, integer, number, small},
           {integer, integer, integer, number, integer, number, small, flag, number, integer, number, flag, small},
           9,
           make<BeamStep>,
           -1,
           1}};
}

}  // namespace lingon
