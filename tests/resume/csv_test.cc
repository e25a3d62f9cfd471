// --metrics FILE.csv: a run that is killed again and again leaves each step once and whole, for Python's csv
// module and, where it is installed, for pandas.
#include <cstdio>

#include "resume/example_run.h"
#include "support/foreign_python.h"

namespace holdfast::test { namespace {

using ::testing::HasSubstr;

constexpr unsigned kSeed = 20260611;

// Says what a reader of such a file finds: the steps are 1 … n, and which losses and evaluations.
constexpr const char* kReader = R"(
import csv, sys
path, last = sys.argv[1], int(sys.argv[2])
text = open(path, newline="").read()
assert text.endswith("\n") and "\r" not in text, "torn"
rows = list(csv.DictReader(text.splitlines(keepends=True), strict=True))
steps = [int(row["step"]) for row in rows]
assert steps == list(range(1, last + 1)), f"{len(steps)} rows, twice or missing: {steps}"
for row in rows:
    assert None not in row and None not in row.values(), f"torn: {row}"
    assert int(row["samples"]) == 16 * int(row["step"]), row
    assert int(row["epoch"]) == (int(row["step"]) - 1) // 16, row
    for column in "time", "lr", "loss":
        float(row[column])
    evaluated = int(row["step"]) % 16 == 0 or int(row["step"]) == last
    assert not evaluated or (float(row["val_loss"]) > 0 and float(row["val_accuracy"]) >= 0), row
attempts = [int(row["attempt"]) for row in rows]
assert attempts == sorted(attempts) and attempts[0] >= 1, attempts
assert all(a["time"] <= b["time"] for a, b in zip(rows, rows[1:])), "time runs backwards"
for row in rows:
    print(row["step"], row["loss"], row["val_loss"], row["val_accuracy"])
try:
    import pandas
except ImportError:
    print("pandas is not installed", end="", file=sys.stderr)
    sys.exit()
exact = {"float_precision": "round_trip"} if int(pandas.__version__.split(".")[0]) < 3 else {}
frame = pandas.read_csv(path, **exact)
assert list(frame["step"]) == steps and (frame.dtypes != object).all(), frame.dtypes
assert list(frame["loss"]) == [float(row["loss"]) for row in rows]
print("pandas", pandas.__version__, "read it", end="", file=sys.stderr)
)";

class Csv : public ::testing::Test {
 protected:
  std::filesystem::path csv() const { return run_.metrics(); }
  // Rows so far, of an attempt that may be writing.
  std::int64_t rows() const {
    if (!std::filesystem::exists(csv())) return 0;
    const std::string text = read_text(csv());
    return std::count(text.begin(), text.end(), '\n') - 1;
  }
  static Ended read(const ExampleRun& run, std::int64_t last) {
    static const ForeignPython pandas("pandas");
    const std::string python = pandas ? pandas.program() : "/usr/bin/python3";
    return Subprocess({python, "-c", kReader, run.metrics().string(), std::to_string(last)}, {}).wait();
  }
  std::vector<std::filesystem::path> csv_files() const {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(run_.directory())) {
      if (entry.path().filename().string().starts_with("training")) files.push_back(entry.path());
    }
    return files;
  }

  ExampleRun run_{small({"--every", "5steps", "--schedule-steps", "64"}), "run/training.csv"};
};

TEST_F(Csv, AfterManyKillsEachStepIsThereOnceAndWhole) {
  std::mt19937 random(kSeed);
  const int kills = nightly() ? 50 : 3;
  int beyond = 0;  // kills after which rows lay beyond the newest checkpoint
  for (int i = 0; i < kills; ++i) {
    const std::int64_t before = rows();
    const auto process = run_.start({"--steps", "1000000"});
    // New rows, not those that the resume has yet to drop.
    const auto written = std::filesystem::exists(csv()) ? std::filesystem::file_size(csv()) : 0;
    ASSERT_TRUE(process->wait_until([&] {
      return rows() > before + 1 || (written > 0 && std::filesystem::file_size(csv()) > written + 200);
    })) << process->err();
    std::this_thread::sleep_for(
        std::chrono::microseconds(std::uniform_int_distribution<int>(0, 200'000)(random)));
    process->send(SIGKILL);
    const Ended ended = process->wait();
    ASSERT_EQ(ended.signal, SIGKILL) << ended.err;
    if (ended.err.find("are dropped") != std::string::npos) ++beyond;
  }
  const std::int64_t last = rows() + 20;
  const Ended ended = run_.finish({"--steps", std::to_string(last)});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const Ended reader = read(run_, last);
  EXPECT_EQ(reader.exit_code, 0) << reader.err;
  EXPECT_THAT(csv_files(), ::testing::ElementsAre(csv())) << "nothing had to be kept aside";
  std::printf("csv: %d kills, %d resumes dropped rows, %lld steps, %s, seed %u\n", kills, beyond,
              static_cast<long long>(last), reader.err.c_str(), kSeed);

  // The rows of all attempts are those of a run that nobody killed.
  const ExampleRun straight(small({"--schedule-steps", "64"}), "straight.csv");
  ASSERT_EQ(straight.finish({"--steps", std::to_string(last)}).exit_code, 0);
  EXPECT_EQ(reader.out, read(straight, last).out);
}

TEST_F(Csv, AResumeFromAnEarlierStepKeepsTheRowsOfTheBranchItLeaves) {
  // A life that ends has saved its last step.
  for (const char* last : {"12", "20"}) ASSERT_EQ(run_.finish({"--steps", last, "--no-eval"}).exit_code, 0);
  const std::string before = read_text(csv());
  const Ended ended = run_.finish({"--steps", "23", "--resume-from", "12"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(read(run_, 23).exit_code, 0);
  EXPECT_EQ(read_text(run_.directory() / "training.step-20.csv"), before);
  EXPECT_THAT(ended.err, HasSubstr("the old file is kept beside it as training.step-20.csv"));
}

TEST_F(Csv, AFolderOfThatNameIsSaidBeforeTheTrainingStarts) {
  std::filesystem::create_directories(csv());
  const Ended ended = run_.finish({"--steps", "2"});
  EXPECT_EQ(ended.exit_code, 74) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr(csv().string()));
  EXPECT_EQ(ended.out, "");
}

TEST_F(Csv, AFileThatCannotBeWrittenLaterStopsNothing) {
  std::filesystem::create_directories(csv().string() + ".tmp/in the way");
  const Ended ended = run_.finish({"--steps", "5", "--no-eval"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  const auto first = ended.err.find("no more metrics are written to " + csv().string());
  EXPECT_NE(first, std::string::npos) << ended.err;
  EXPECT_EQ(ended.err.find("no more metrics", first + 1), std::string::npos) << ended.err;
}

}}  // namespace holdfast::test
