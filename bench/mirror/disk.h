// A folder with the run directory of a trainer that has saved once, and the ways in which its checkpoint is copied. Each
// way makes the source leave the page cache first, where a peer would read it from.
//
// Errors: Error; IoError. Threads: one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "../shared/temporary_folder.h"
#include "measured_run.h"

namespace holdfast::bench {

using Words = std::vector<std::string>;

class Disk {
 public:
  Disk(const std::filesystem::path& directory, std::uint64_t bytes);

  std::filesystem::path file() const { return file_; }
  std::string run() const { return folder_.path() / "run"; }
  std::string home() const { return folder_.path() / "home"; }
  std::string log() const { return folder_.path() / "log"; }
  void settle() const;  // an empty home, and nothing that the disk still has to do

  // `limit`: MB/s; 0: none.
  Measured mirror(const std::string& place, double limit) const;
  Measured rclone_alone(double limit) const;
  // Reads the copy of rclone_alone() once: what a mirror that verifies cannot do without.
  Measured rclone_reads_back() const;
  // cp, and all that makes it durable; slow where the destination is.
  Measured copied(double limit) const;

 private:
  std::string copy() const { return home() + "/" + file_.filename().native(); }
  void drop_source() const;

  TemporaryFolder folder_;
  std::filesystem::path file_;
};

bool rclone_is_there();
std::string program(const char* name);  // one beside this bench
std::string self();
// `holdfast mirror RUN --to HOME`, at `limit`.
Words mirror_command(const std::string& run, const std::string& home, double limit);
std::string number(double value);
// Of a limit: "100 MB/s" or "no limit"; "100" or "unlimited".
std::string name_of(double limit);
std::string key_of(double limit);
// Runs this bench's trainer to its end (trainer.h), and returns what it prints.
nlohmann::json trained(const Words& options, const std::string& log);

}  // namespace holdfast::bench
