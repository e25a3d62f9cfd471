// Time decides nothing: wall clocks and file times that are ten years off, in either direction and in the
// wrong order, change neither where a run begins nor how it ends. Nor does the place: the checkpoints alone,
// copied to another directory, are all that a run needs.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "crash/driver_run.h"
#include "holdfast/io/file_system.h"
#include "holdfast/store/names.h"
#include "holdfast/store/run_state.h"

namespace holdfast::test { namespace {

using std::filesystem::path;

constexpr std::int64_t kSteps = 12;
constexpr auto kYear = std::chrono::hours(24 * 365);

std::string started_line(const Ended& ended) {
  for (const std::string& line : lines_of(ended.out)) {
    if (line.starts_with("started ")) return line;
  }
  return "never started: " + ended.err;
}

std::vector<path> files_in(const path& directory) {
  std::vector<path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// Every file, in the order of the names, so many years from now, and from one to the next.
void set_times(const path& directory, int years, std::chrono::hours apart) {
  auto time = std::filesystem::file_time_type::clock::now() + years * kYear;
  for (const path& file : files_in(directory)) last_write_time(file, time += apart);
}

class Clocks : public ::testing::Test {
 protected:
  // Killed in the middle of a commit; the newest file is damaged.
  void SetUp() override {
    straight_ = straight_state(kSteps);
    ASSERT_EQ(drive(past_, 6, {"every=1", "keep=4", "wait"}).exit_code, 0);
    ASSERT_EQ(drive(past_, 9, {"every=1", "keep=4", "wait", "kill-before=60"}).signal, SIGKILL);
    ASSERT_EQ(drive(past_, 9, {"every=1", "keep=4", "wait", "kill-before=45"}).signal, SIGKILL);
    path newest;
    for (const path& file : files_in(past_)) {
      const auto id = parse_checkpoint_name(file.filename().native());
      if (!id) continue;
      ++held_;
      if (!parse_checkpoint_name(newest.filename().native()) ||
          *id > *parse_checkpoint_name(newest.filename().native())) {
        newest = file;
      }
    }
    ASSERT_GE(held_, 4);
    std::string bytes = read_text(newest);
    bytes[bytes.size() / 2] ^= 1;
    write_text(newest, bytes);
  }
  path copy_of_past(const TemporaryFolder& place) const {
    copy(past_, place.path() / "run", std::filesystem::copy_options::recursive);
    return place.path() / "run";
  }

  TemporaryFolder folder_;
  const path past_ = folder_.path() / "run";
  std::string straight_;
  int held_ = 0;  // checkpoints in the past
};

int year_of(const path& directory) {
  const auto state = read_run_state(*FileSystem::real().open_directory(directory, false));
  return state ? std::stoi(state->time.substr(0, 4)) : 0;
}

TEST_F(Clocks, WrongOnesChangeNothing) {
  std::string started;
  int year = 0;
  int starts = 0;
  for (const int years : {0, 10, -10}) {
    for (const int file_years : {0, 10, -10}) {
      for (const auto apart : {std::chrono::hours(1), std::chrono::hours(-1), std::chrono::hours(0)}) {
        SCOPED_TRACE("clock " + std::to_string(years) + " years, files " + std::to_string(file_years) +
                     " years and " + std::to_string(apart.count()) + " h apart");
        const TemporaryFolder place;
        const path directory = copy_of_past(place);
        set_times(directory, file_years, apart);
        const Ended ended =
            drive(directory, kSteps, {"every=2", "keep=2", "wait", "clock-years=" + std::to_string(years)});
        ASSERT_EQ(ended.exit_code, 0) << ended.err;
        if (starts++ == 0) {
          started = started_line(ended);
          year = year_of(directory);
          EXPECT_GT(last_step(ended.out, "started"), 0);
        }
        EXPECT_EQ(started_line(ended), started);
        EXPECT_EQ(state_in(ended.last_line()), straight_);
        EXPECT_NEAR(year_of(directory), year + years, 1) << "the clock was not wrong at all";
      }
    }
  }
  std::printf("clocks: %d starts with clocks and file times 10 years off, 0 changed\n", starts);
}

TEST_F(Clocks, ThatJumpBetweenLivesChangeNothing) {
  int jump = 0;
  std::int64_t acknowledged = -1;
  for (int life = 0; life < 20; ++life) {
    jump = life % 2 == 0 ? 10 : -10;
    const Ended ended = drive(past_, kSteps,
                              {"every=1", "keep=2", "wait", "clock-years=" + std::to_string(jump),
                               "kill-before=" + std::to_string(52 + 7 * life)});
    EXPECT_GE(last_step(ended.out, "started"), acknowledged) << "life " << life;
    acknowledged = std::max(acknowledged, last_step(ended.out, "acknowledged"));
    if (ended.signal == 0) {
      EXPECT_EQ(ended.exit_code, 0) << ended.err;
      EXPECT_EQ(state_in(ended.last_line()), straight_);
      EXPECT_GT(life, 1) << "nothing was killed";
      return;
    }
    set_times(past_, -jump, std::chrono::hours(-1));
  }
  FAIL() << "never came to its end";
}

TEST_F(Clocks, OnlyTheCheckpointsAreNeeded) {
  const TemporaryFolder other;
  const path directory = other.path() / "moved here";
  std::filesystem::create_directory(directory);
  AttemptNumber newest = 0;
  for (const path& file : files_in(past_)) {
    if (file.extension() != ".h5") continue;
    copy_file(file, directory / file.filename());
    newest = std::max(newest, parse_checkpoint_name(file.filename().native())->attempt);
  }
  const std::string holdfast = std::string(HOLDFAST_BIN_DIR) + "/holdfast";
  const Ended listed = Subprocess({holdfast, "ls", directory}).wait();
  EXPECT_EQ(listed.exit_code, 0) << listed.err;
  const Ended verified = Subprocess({holdfast, "verify", directory}).wait();
  EXPECT_EQ(verified.exit_code, 1) << "the damaged one must be named\n" << verified.out << verified.err;
  for (const path& file : files_in(directory)) {
    EXPECT_NE(listed.out.find(file.filename()), std::string::npos) << file << "\n" << listed.out;
    EXPECT_NE(verified.out.find(file.filename()), std::string::npos) << file << "\n" << verified.out;
  }

  const TemporaryFolder beside;
  const Ended there = drive(copy_of_past(beside), kSteps);
  const Ended here = drive(directory, kSteps);
  EXPECT_EQ(here.exit_code, 0) << here.err;
  EXPECT_EQ(started_line(here), started_line(there));
  EXPECT_EQ(state_in(here.last_line()), straight_);
  EXPECT_EQ(read_run_state(*FileSystem::real().open_directory(directory, false))->attempt, newest + 1);
}

// A start script that builds for ten minutes and then becomes the program is no start-up of the run.
TEST(Life, BeginsWithTheProgramAndNotWithTheScriptBeforeIt) {
  const TemporaryFolder folder;
  const std::string run = folder.path() / "run";
  const path built = folder.path() / "built";
  std::vector<std::string> command = {"/bin/sh", "-c",
                                      "sleep 2; date -u +%Y-%m-%dT%H:%M:%SZ >\"$0\"; exec \"$@\"", built};
  for (const std::string& word : driver(run, 3)) command.push_back(word);
  ASSERT_EQ(Subprocess(command, quiet()).wait().exit_code, 0);
  const Ended report =
      Subprocess({std::string(HOLDFAST_BIN_DIR) + "/holdfast", "report", "--json", run}).wait();
  ASSERT_EQ(report.exit_code, 0) << report.err;
  const std::string word = "\"began\": \"";
  const std::size_t at = report.out.find(word);
  ASSERT_NE(at, std::string::npos) << report.out;
  EXPECT_GE(report.out.substr(at + word.size(), 20), lines_of(read_text(built)).at(0));
}

}}  // namespace holdfast::test
