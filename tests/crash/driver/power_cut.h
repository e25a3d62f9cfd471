// Cuts the power of the volume that the driver saves on, at an operation of its own choice:
//
//   cut-before=N                just before the N-th operation that could change the disk
//   cut-after-fsync=N           after the N-th fsync of a file, before the next such operation
//   cut-after-rename=N          after the N-th rename to a checkpoint's name, likewise
//   cut-after-directory-fsync=N after the fsync of the directory that follows the N-th such rename, likewise:
//                               the step has been acknowledged by then
//   cut-how=N                   a VolumeCut; at_once unless given
//
// Prints `cut before=<operation> after=<operation>`; the process goes on, against a dead volume.
//
// Threads: at() on any.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>

#include "holdfast/store/names.h"
#include "support/fault_file_system.h"
#include "support/loop_volume.h"

namespace holdfast::test {

class PlannedCut {
 public:
  PlannedCut(std::filesystem::path volume, std::map<std::string, std::int64_t> given)
      : volume_(std::move(volume)), given_(std::move(given)) {}

  static bool wanted(const std::map<std::string, std::int64_t>& given) {
    const auto first = given.lower_bound("cut-");
    return first != given.end() && first->first.starts_with("cut-");
  }

  void at(const Operation& operation) {
    const std::lock_guard lock(mutex_);
    if (!operation.mutating || done_) return;
    if (due_ || reached("cut-before", ++operations_)) {
      cut(operation);
      return;
    }
    last_ = operation.kind;
    if (operation.kind == Op::sync_file) due_ = reached("cut-after-fsync", ++fsyncs_);
    // A trial commit renames too.
    if (operation.kind == Op::rename_new && parse_checkpoint_name(operation.to)) {
      due_ = reached("cut-after-rename", ++renames_);
    }
    if (operation.kind == Op::sync_directory) due_ = reached("cut-after-directory-fsync", renames_);
  }

 private:
  bool reached(const char* option, std::int64_t count) const {
    const auto planned = given_.find(option);
    return planned != given_.end() && planned->second == count;
  }

  void cut(const Operation& before) {
    done_ = true;
    const auto how = given_.find("cut-how");
    try {
      cut_power(volume_, how == given_.end() ? VolumeCut::at_once : static_cast<VolumeCut>(how->second));
      std::printf("cut before=%s after=%s\n", std::string(name_of(before.kind)).c_str(),
                  std::string(name_of(last_)).c_str());
      std::fflush(stdout);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "checkpointer_driver: %s\n", error.what());
      std::_Exit(70);
    }
  }

  const std::filesystem::path volume_;
  const std::map<std::string, std::int64_t> given_;
  std::mutex mutex_;
  std::int64_t operations_ = 0;
  std::int64_t fsyncs_ = 0;
  std::int64_t renames_ = 0;
  Op last_ = Op::status;
  bool due_ = false;
  bool done_ = false;
};

}  // namespace holdfast::test
