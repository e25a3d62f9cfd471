// `holdfast diff` where one side, or both, is a file of PyTorch or safetensors: the weights alone are
// compared, by key. Prints the result.
//
// Errors: Error, with ExitCode::unreadable, for a file that cannot be read. Threads: one. Memory: two
// tensors, or two storages with the tensors that share them.
#pragma once

#include <filesystem>

namespace holdfast { inline namespace v0_2 {

// True if the file's first bytes are those of PyTorch or safetensors. Throws IoError.
bool is_foreign_file(const std::filesystem::path& path);

struct WeightsDiffRequest {
  std::filesystem::path a;
  std::filesystem::path b;
  bool all = false;  // list every tensor that differs
  bool json = false;
  double read_limit = 0;  // MB/s; 0: none
};
// Returns the exit code.
int diff_weights(const WeightsDiffRequest& request);

}}  // namespace holdfast::v0_2
