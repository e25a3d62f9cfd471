// `holdfast import --like`: a training state that Python has gone on with becomes a whole checkpoint again.
//
// Errors: Error with ExitCode::difference for a file that is refused; UsageError; IoError. Threads: one.
#pragma once

#include <filesystem>

namespace holdfast { inline namespace v0_2 {

struct StateImportRequest {
  std::filesystem::path file;
  std::filesystem::path to;    // a new run directory
  std::filesystem::path like;  // a checkpoint of the program that goes on
  bool json = false;
};

int run_state_import(const StateImportRequest& request);

}}  // namespace holdfast::v0_2
