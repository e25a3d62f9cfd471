// The way back of torch_training_state() (torch_export.h): Python has loaded an exported training state, has
// gone on with it, and has saved dicts of the same shape. The result is a whole state: what the file names,
// and all else as in a checkpoint of the program that goes on (docs/interop.md).
//
//   auto read = read_training_state(file, index_of_the_checkpoint);
//
// The file counts as hostile, as in torch_archive.h. A file that does not fit the checkpoint is refused with
// the name of what differs.
//
// Errors: such a file is a value (Rejection); an error of the operating system is an IoError.
// Threads: a free function; it starts its own threads and joins them.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "holdfast/format/reader.h"

namespace holdfast { inline namespace v0_2 {

struct ImportedState {
  std::int64_t step = 0;
  Attributes attributes;            // without what a run records about itself ("run.…")
  std::vector<TensorSpec> tensors;  // of the new checkpoint
  std::shared_ptr<Snapshot> read;   // the bytes of those that the file has
  std::map<std::string, std::vector<std::byte>, std::less<>> made = {};  // the file has them as numbers
  // For people.
  std::vector<std::string> from_file = {};        // "model (4 tensors)", "step"
  std::vector<std::string> from_checkpoint = {};  // "rng"
  std::vector<std::string> left_out = {};         // keys of the file
  std::vector<std::string> ignored_options = {};  // of Python's optimizers: "foreach"

  // The bytes of a tensor; nullopt: they are the checkpoint's own.
  std::optional<std::span<const std::byte>> find(std::string_view name) const;
};

std::variant<ImportedState, Rejection> read_training_state(const File& file, const CheckpointIndex& like,
                                                           int threads = 2);

}}  // namespace holdfast::v0_2
