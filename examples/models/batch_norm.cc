#include "examples/models/batch_norm.h"

#include <string>

#include "holdfast/base/error.h"

namespace holdfast { inline namespace v0_2 {

std::string_view word_of(BatchNormKind kind) { return kind == BatchNormKind::fused ? "fused" : "aten"; }

BatchNormKind parse_batch_norm(std::string_view word) {
  for (const BatchNormKind kind : {BatchNormKind::aten, BatchNormKind::fused}) {
    if (word == word_of(kind)) return kind;
  }
  throw UsageError("there is no batch norm '" + std::string(word) + "': choose aten or fused");
}

}}  // namespace holdfast::v0_2
