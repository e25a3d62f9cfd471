// What Checkpointer::peek() tells: the checkpoint that resume() will take.
//
//   if (const auto there = checkpointer.peek(); there && there->groups("optimizer") == 2) unfreeze(optimizer);
//
// Errors: the getters of Attributes throw RefusedError for a name that is not there. Threads: a plain value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "holdfast/base/export.h"
#include "holdfast/snapshot/attributes.h"
#include "holdfast/snapshot/tensor_spec.h"

namespace holdfast { inline namespace v0_2 {

struct HOLDFAST_EXPORT Peeked {
  std::int64_t step = 0;
  std::int64_t epoch = 0;           // of the position in the data ("cursor.epoch")
  std::string checkpoint;           // the file, as in Resumed
  Attributes options;               // by name, as resume() compares them: "optimizer.group.0.lr"
  Attributes attributes;            // all of the file, the options included: "phase.value"
  std::vector<TensorSpec> tensors;  // names, types and shapes; without what other ranks have of their own

  const TensorSpec* tensor(std::string_view name) const;    // "model/fc.weight"; null: there is none
  bool has_part(std::string_view name) const;               // a name of state.add() or value()
  std::int64_t groups(const std::string& optimizer) const;  // parameter groups; 0: no such part
};

}}  // namespace holdfast::v0_2
