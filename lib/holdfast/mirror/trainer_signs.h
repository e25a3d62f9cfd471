// What a mirror sees of the trainer beside it, in the run directory alone. The trainer writes while a
// temporary file of the newest attempt is there. It tells an announced end in its progress file.
//
//   TrainerSigns trainer(file_system, directory, clock);
//   while (trainer.writes()) clock.sleep_for(20ms);
//
// A temporary file that stays for 30 s is left over, or its write hangs: it counts no more.
// Errors: none; what cannot be read is no sign. Threads: one. Cost: writes() lists the directory, at most
// every 50 ms; end_is_announced() reads a file of 4 KiB, at most every second.
#pragma once

#include <filesystem>
#include <set>
#include <string>

#include "holdfast/base/clock.h"
#include "holdfast/io/file_system.h"

namespace holdfast { inline namespace v0_2 {

class TrainerSigns {
 public:
  // Both references outlive this object.
  TrainerSigns(FileSystem& file_system, std::filesystem::path directory, const Clock& clock)
      : file_system_(file_system), directory_(std::move(directory)), clock_(clock) {}

  bool writes();
  // True until a minute after the end.
  bool end_is_announced();

 private:
  bool look_for_writing();
  bool look_for_end();

  FileSystem& file_system_;
  const std::filesystem::path directory_;
  const Clock& clock_;
  SteadyTime next_look_{};
  bool writes_ = false;
  std::string name_;           // of the temporary file that is there
  SteadyTime since_{};         // when it was first seen
  std::set<std::string> old_;  // names that stayed too long
  SteadyTime next_end_{};
  bool ends_ = false;
};

}}  // namespace holdfast::v0_2
