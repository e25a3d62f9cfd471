// Ranks that a test starts one by one, without a launcher that would end them: of two, here.
//
// Errors: std::runtime_error. Threads: one thread per object.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "dist/rank_output.h"
#include "support/subprocess.h"

namespace holdfast::test {

using Words = std::vector<std::string>;
using Environment = std::map<std::string, std::string>;

// The variables of one start, with a port that nobody else can get.
class Meeting {
 public:
  explicit Meeting(int world_size = 2);
  ~Meeting();
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;
  Environment of_rank(int rank) const;

 private:
  int world_size_;
  int socket_ = -1;
  int port_ = 0;
};

// dist_story's command.
Words story(const std::filesystem::path& run, int steps, const Words& more = {});
// A life of it under `holdfast launch`.
Ended launch(int ranks, const Words& story);
// What one rank alone, without a launcher, said after that word.
Words said_alone(const Ended& ended, const std::string& word);
// Every checkpoint verifies; "" when all do, or there is none. `count` of them then.
std::string not_whole(const std::filesystem::path& run, int* count = nullptr);
// Every file by name and content.
Environment contents(const std::filesystem::path& folder);

}  // namespace holdfast::test
