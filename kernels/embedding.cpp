// Embed: the rows of tokens, from a table of pieces and a table of positions.
#include <algorithm>
#include <atomic>

#include "mapped.h"
#include "operators.h"

namespace lingon {
namespace {

// Bytes of a table whose memory is given back when so many rows of it were read. The system maps up to 2 MB of a file
// around each row, so that texts of some hundred pieces would have all of a table in memory.
constexpr int64_t kLarge = 64 << 20, kRead = 16;

// Inputs: ids (rows) int64; pieces (vocab, dim), float16 as its bits or float32; optionally positions int64 and a
// table of them (length, dim) float. Fewer positions than ids are those of each part of the ids. Attribute: scale, of
// the pieces. Output: (rows, dim), scale * piece + position.
class Embed : public Operator {
 public:
  enum { kIds, kPieces, kPositions, kTable };

  Embed(const NodeInfo& info, size_t inputs) : pieces_(info.constant(kPieces)), scale_(info.number("scale")) {
    require(pieces_.rank() == 2, "expects a table of two dimensions");
    require(pieces_.type == ElementType::kFloat || pieces_.type == ElementType::kFloat16, "expects a table of floats");
    if (inputs > kPositions) {
      table_ = info.constant(kTable);
      require(table_.rank() == 2 && table_.dims[1] == pieces_.dims[1], "expects positions as wide as its pieces");
    }
    bytes_ = pieces_.size() * (pieces_.type == ElementType::kFloat ? sizeof(float) : sizeof(Half));
    released_ = bytes_ >= kLarge && is_mapped(pieces_.data, bytes_);
  }

  void run(const RunContext& context) const override {
    const Tensor ids = context.input(kIds), positions = table_.given() ? context.input(kPositions) : Tensor{};
    const int64_t rows = ids.size(), dim = pieces_.dims[1];
    const int64_t period = std::max<int64_t>(positions.size(), 1);
    require(!positions.given() || (positions.size() > 0 && rows % period == 0) || rows == 0,
            "expects positions for its ids");
    const int64_t* id = ids.as<int64_t>();
    const int64_t* at = positions.given() ? positions.as<int64_t>() : nullptr;
    float* output = context.output(0, {rows, dim}).as<float>();
    for (int64_t row = 0; row < rows; ++row, output += dim) {
      require(0 <= id[row] && id[row] < pieces_.dims[0], "got an id that the vocabulary does not have");
      const int64_t place = at ? at[row % period] : 0;
      require(!at || (0 <= place && place < table_.dims[0]), "got a position beyond its table");
      if (pieces_.type == ElementType::kFloat)
        std::copy_n((const float*)pieces_.data + id[row] * dim, dim, output);
      else
        kernels().widen((const Half*)pieces_.data + id[row] * dim, dim, output);
      kernels().scale_and_add(output, dim, scale_, at ? table_.as<float>() + place * dim : nullptr);
      if (released_ && ++read_ % kRead == 0) give_back(pieces_.data, (const char*)pieces_.data + bytes_);
    }
  }

 private:
  Tensor pieces_, table_;
  float scale_;
  int64_t bytes_;
  bool released_;
  mutable std::atomic<uint64_t> read_{0};  // rows of a large table
};

}  // namespace

std::vector<OperatorKind> embedding_kinds() {
  const ElementType number = ElementType::kFloat, integer = ElementType::kInt64;
  return {{"Embed", {integer, ElementType::kUndefined, integer, number}, {number}, 2, make<Embed>}};
}

}  // namespace lingon
