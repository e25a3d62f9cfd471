// The holdfast program as a user meets it: what it prints, its exit codes, and garbage of every kind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "holdfast/store/names.h"
#include "holdfast/store/run_state.h"
#include "support/subprocess.h"
#include "unit/format/checkpoint_maker.h"

namespace holdfast::test { namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::StartsWith;

Ended holdfast(std::vector<std::string> arguments,
               const std::map<std::string, std::string>& environment = {}) {
  arguments.insert(arguments.begin(), HOLDFAST_BIN_DIR "/holdfast");
  return Subprocess(std::move(arguments), environment).wait();
}

// Every complaint is one line that says who complains.
void expect_complaint(const Ended& ended, int code, const std::string& text) {
  EXPECT_EQ(ended.exit_code, code) << ended.err << ended.out;
  EXPECT_EQ(ended.signal, 0);
  EXPECT_THAT(ended.err, StartsWith("holdfast: "));
  EXPECT_THAT(ended.err, HasSubstr(text));
  EXPECT_EQ(std::count(ended.err.begin(), ended.err.end(), '\n'), 1) << ended.err;
}

class Tool : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_.path() / name; }
  std::string directory() const { return folder_.path(); }

  // A checkpoint as a run leaves it; `change` may alter the state before it is written.
  std::string add(std::int64_t step, AttemptNumber attempt,
                  const std::function<void(Snapshot&)>& change = {}) {
    Attributes attributes = small_attributes();
    attributes.set("run.attempt", static_cast<std::int64_t>(attempt), Role::record);
    attributes.set("run.time", std::string("2025-06-01T12:00:05Z"), Role::record);
    const Made made = make_snapshot(small_tensors(), attributes, step);
    if (change) change(*made.snapshot);
    std::string name = path(checkpoint_name({attempt, step}));
    write(FileSystem::real(), name, made);
    return name;
  }
  static void flip(const std::string& file, std::int64_t byte) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(byte, byte < 0 ? std::ios::end : std::ios::beg);
    const auto position = stream.tellg();
    const char value = static_cast<char>(stream.get() ^ 1);
    stream.seekp(position);
    stream.put(value);
  }

 private:
  TemporaryFolder folder_;
};

TEST_F(Tool, HelpHasAnExampleEverywhere) {
  for (const std::string command : {"", "ls", "show", "verify", "diff", "prune", "report", "probe"}) {
    const Ended ended = holdfast(command.empty() ? std::vector<std::string>{"--help"}
                                                 : std::vector<std::string>{command, "--help"});
    EXPECT_EQ(ended.exit_code, 0);
    EXPECT_THAT(ended.out, HasSubstr("Example:\n  holdfast ")) << command;
    EXPECT_EQ(ended.err, "");
  }
  EXPECT_THAT(holdfast({"--version"}).out,
              MatchesRegex("holdfast [0-9]+\\.[0-9]+\\.[0-9]+, checkpoint format 1\n"
                           "commit ([0-9a-f]{40}|unknown)\n"
                           "compiler [A-Za-z]+ [0-9.]+, libstdc\\+\\+ [0-9]+, running with glibc [0-9.]+\n"
                           "libraries CLI11 [0-9.]+, nlohmann-json [0-9.]+, "
                           "xxHash [0-9.]+, cpp-httplib [0-9.]+\n"));
}

TEST_F(Tool, MistakesOfUseAreOneLine) {
  expect_complaint(holdfast({}), 64, "holdfast --help");
  expect_complaint(holdfast({"lss"}), 64, "no command 'lss'");
  expect_complaint(holdfast({"ls"}), 64, "DIR");
  expect_complaint(holdfast({"ls", directory(), "--nonsense"}), 64, "--nonsense");
  expect_complaint(holdfast({"diff", "a"}), 64, "B");
  const std::string home = path("home");
  expect_complaint(holdfast({"fetch", directory(), "--from", ""}), 64, "--from: is empty");
  expect_complaint(holdfast({"fetch", directory(), "--from", home, "--home-mount", ""}), 64,
                   "--home-mount: is empty");
  expect_complaint(holdfast({"ls", directory()}, {{"HOLDFAST_LOG", "loud"}}), 64, "HOLDFAST_LOG");
}

TEST_F(Tool, WhatIsNotThereIsUnreadable) {
  expect_complaint(holdfast({"ls", path("nothing")}), 2, "No such file");
  expect_complaint(holdfast({"show", path("nothing")}), 2, "No such file");
  expect_complaint(holdfast({"verify", path("nothing")}), 2, "No such file");
  expect_complaint(holdfast({"verify", directory()}), 2, "no checkpoints in");
  expect_complaint(holdfast({"diff", path("a"), path("b")}), 2, "No such file");
  expect_complaint(holdfast({"show", directory()}), 2, "directory");
}

TEST_F(Tool, ListsNewestFirstByAttemptThenStep) {
  add(900, 1);
  add(1000, 1);
  add(950, 2);
  write_text(path("notes.txt"), "not ours");
  write_text(path(damaged_name({1, 800})), "");
  const Ended ended = holdfast({"ls", directory()});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  const auto lines = lines_of(ended.out);
  ASSERT_EQ(lines.size(), 5u) << ended.out;
  EXPECT_THAT(lines[0], MatchesRegex(" +STEP  ATTEMPT +SIZE +AGE  STATE  NAME"));
  EXPECT_THAT(lines[1],
              MatchesRegex(" +950 +2 +[0-9.]+ kB +[0-9]+d [0-9]+h  ok     step-000000000950-a0002.h5"));
  EXPECT_THAT(lines[2], HasSubstr("step-000000001000-a0001.h5"));
  EXPECT_THAT(lines[3], HasSubstr("step-000000000900-a0001.h5"));
  EXPECT_THAT(lines[4], HasSubstr("1 more set aside as damaged"));
  EXPECT_THAT(holdfast({"ls", directory() + "/.."}).out, HasSubstr("no checkpoints in"));
}

TEST_F(Tool, LsTellsWhichStatesAreNotFinite) {
  const auto with = [](bool finite) {
    return [finite](Snapshot& snapshot) { snapshot.attributes.set("run.finite", finite, Role::record); };
  };
  add(100, 1, with(true));
  add(200, 1, with(false));
  const auto lines = lines_of(holdfast({"ls", directory()}).out);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_THAT(lines[1], HasSubstr("  ok, not finite  step-000000000200-a0001.h5"));
  EXPECT_THAT(lines[2], HasSubstr("  ok              step-000000000100-a0001.h5"));
}

TEST_F(Tool, LsTellsWhatTheSavesCost) {
  add(900, 1);
  std::filesystem::create_directories(path("attempts"));
  write_text(path("attempts/" + claim_name(1)), "");
  RunState state;
  state.attempt = 1;
  state.phase = RunPhase::running;
  state.step = 950;
  state.durable_step = 900;
  state.saves = 12;
  state.saved_bytes = 2'260'000'000;
  state.elapsed_ms = 3'600'000;
  state.waited_ms = 400;
  state.most_risk_ms = 61'000;
  write_text(path("attempts/" + state_name(1)), to_json(state));
  EXPECT_THAT(holdfast({"ls", directory()}).out,
              HasSubstr("\n  12 saves, 2.26 GB in 1h 00m; training waited 400 ms for them; at most 1m 01s of "
                        "work was at risk\n"));
}

TEST_F(Tool, LsSaysWhatIsWrong) {
  add(1, 1);
  flip(add(2, 1), 5000);
  flip(add(3, 1), -1);
  fs::copy(path(checkpoint_name({1, 1})), path(checkpoint_name({1, 4})));
  const Ended quick = holdfast({"ls", directory()});
  EXPECT_EQ(quick.exit_code, 0);
  EXPECT_THAT(quick.out, HasSubstr("step-000000000002-a0001.h5: index: digest differs"));
  EXPECT_THAT(quick.out,
              HasSubstr("step-000000000004-a0001.h5: holds step 1 of attempt 1, which is not what"));
  EXPECT_THAT(quick.out, testing::Not(HasSubstr("step-000000000003-a0001.h5:")));
  EXPECT_THAT(holdfast({"ls", directory(), "--verify"}).out, HasSubstr("step-000000000003-a0001.h5: "));
}

TEST_F(Tool, ShowsWhatIsInside) {
  const std::string file = add(1200, 3);
  const Ended ended = holdfast({"show", file});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("step     1,200"));
  EXPECT_THAT(ended.out, MatchesRegex("(.|\n)*lr +0.1\n(.|\n)*"));
  EXPECT_THAT(ended.out, HasSubstr("host         \"here\""));
  EXPECT_THAT(ended.out, HasSubstr("model/conv.weight"));
  EXPECT_THAT(ended.out, HasSubstr("[4, 3, 2]"));
}

TEST_F(Tool, ShowsJsonForPrograms) {
  const Made made = make_snapshot(small_tensors(), small_attributes());
  const std::string file =
      add(1200, 3, [](Snapshot& s) { s.attributes.set("loss", std::nan(""), Role::record); });
  const Ended ended = holdfast({"show", file, "--json"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  const auto json = nlohmann::json::parse(ended.out);
  EXPECT_EQ(json["step"], 1200);
  EXPECT_EQ(json["state"], to_hex(state_digest(*made.snapshot)));
  EXPECT_EQ(json["attributes"]["lr"]["value"], 0.1);
  EXPECT_EQ(json["attributes"]["lr"]["decides"], true);
  EXPECT_EQ(json["attributes"]["loss"]["value"], "nan");
  ASSERT_EQ(json["tensors"].size(), 5u);
  EXPECT_EQ(json["tensors"][0]["shape"], (std::vector<int>{4, 3, 2}));
  EXPECT_EQ(json["tensors"][0]["digest"], to_hex(tensor_digest(made.snapshot->bytes(0))));
}

TEST_F(Tool, VerifyNamesTheDamage) {
  const std::string good = add(1, 1);
  EXPECT_EQ(holdfast({"verify", good}).exit_code, 0);
  EXPECT_EQ(holdfast({"verify", directory()}).exit_code, 0);

  const Made made = make_snapshot(small_tensors(), small_attributes());
  const std::string bad = add(2, 1);
  flip(bad, static_cast<std::int64_t>(made.plan->layout->offset(*made.plan->layout->find("rng/cpu"))));
  Ended ended = holdfast({"verify", bad});
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.out, StartsWith("damaged "));
  EXPECT_THAT(ended.out, HasSubstr("tensor rng/cpu"));
  ended = holdfast({"verify", directory()});
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_EQ(lines_of(ended.out).size(), 2u);
  EXPECT_THAT(lines_of(ended.out)[1], StartsWith("ok "));

  fs::resize_file(bad, fs::file_size(bad) - 1);
  EXPECT_THAT(holdfast({"verify", bad}).out, HasSubstr("1 fewer than were sealed"));
  write_text(path("x"), "HOLDFAST");
  expect_complaint(holdfast({"show", path("x")}), 1, "damaged");
}

// Retention deletes the oldest while the newer ones are read, at a second a file.
TEST_F(Tool, VerifyBesideATrainerLeavesOutWhatItDeletes) {
  const std::string oldest = add(1, 1);
  add(2, 1);
  const std::string newest = add(3, 1);
  const std::string rate = std::to_string(static_cast<double>(fs::file_size(newest)) / 1e6);
  Subprocess verify({HOLDFAST_BIN_DIR "/holdfast", "verify", directory(), "--read-limit", rate},
                    {{"HOLDFAST_LOG", "info"}});
  ASSERT_TRUE(verify.wait_until([&] { return verify.out().find("step-000000000003") != std::string::npos; }));
  fs::remove(oldest);
  const Ended ended = verify.wait();
  EXPECT_EQ(ended.exit_code, 0) << ended.out << ended.err;
  EXPECT_EQ(lines_of(ended.out).size(), 2u) << ended.out;
  EXPECT_THAT(ended.err, HasSubstr("step-000000000001-a0001.h5 was deleted meanwhile; left out"));
}

TEST_F(Tool, ANewerFormatIsNotDamage) {
  const std::string file = add(1, 1);
  const std::vector<std::byte> newer = of_format(7, 2);
  std::ofstream(file, std::ios::binary | std::ios::trunc)
      .write(reinterpret_cast<const char*>(newer.data()), static_cast<std::streamsize>(newer.size()));
  const Ended ended = holdfast({"verify", file});
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_THAT(ended.out, HasSubstr("use a newer Holdfast"));
  EXPECT_THAT(holdfast({"ls", directory()}).out, HasSubstr(" newer "));
  expect_complaint(holdfast({"show", file}), 2, "newer");
  expect_complaint(holdfast({"diff", file, file}), 2, "newer");
}

TEST_F(Tool, DiffFindsFirstAndWorst) {
  const std::string a = add(1, 1);
  const std::string equal = add(1, 2);
  const std::string b = add(1, 3, [](Snapshot& snapshot) {
    const auto one = [&](const char* name, auto value, std::size_t element) {
      const auto slot = snapshot.layout->slot(*snapshot.layout->find(name), snapshot.arena->bytes());
      std::memcpy(&slot[element * sizeof value], &value, sizeof value);
    };
    one("model/conv.weight", 1.0f, 3);
    one("model/scale", 5.0, 0);
    snapshot.attributes.set("lr", 0.2);
    snapshot.attributes.set("more", true);
  });
  Ended ended = holdfast({"diff", a, a});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("0 of 5 differ"));
  EXPECT_EQ(ended.last_line(), "equal");

  ended = holdfast({"diff", a, equal, "--all"});
  EXPECT_EQ(ended.exit_code, 0);
  EXPECT_THAT(ended.out, HasSubstr("run.attempt  1  2"));

  ended = holdfast({"diff", a, b});
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.out, HasSubstr("2 of 5 differ"));
  EXPECT_THAT(
      ended.out,
      MatchesRegex("(.|\n)*first  model/conv.weight  float32 \\[4, 3, 2\\]  1 of 24, from element 3(.|\n)*"));
  EXPECT_THAT(ended.out, MatchesRegex("(.|\n)*worst  model/(.|\n)*"));
  EXPECT_THAT(ended.out, MatchesRegex("(.|\n)*  lr +0.1  0.2\n  more +-    true\n(.|\n)*"));
  EXPECT_EQ(ended.last_line(), "different");

  flip(b, 5000);
  expect_complaint(holdfast({"diff", a, b}), 2, "damaged");
}

TEST_F(Tool, DiffOfOtherTensors) {
  const std::string a = add(1, 1);
  const Made other =
      make_snapshot({{"model/conv.weight", DType::float32, {3, 4, 2}}, {"model/new", DType::int8, {1}}},
                    small_attributes(), 1);
  write(FileSystem::real(), path("other.h5"), other);
  const Ended ended = holdfast({"diff", a, path("other.h5")});
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(
      ended.out,
      HasSubstr("model/conv.weight: float32 [4, 3, 2] in the first, float32 [3, 4, 2] in the second"));
  EXPECT_THAT(ended.out, HasSubstr("only in the first: rng/cpu"));
  EXPECT_THAT(ended.out, HasSubstr("only in the second: model/new"));
}

TEST_F(Tool, GarbageNeverCrashesIt) {
  const std::string file = add(5, 1);
  std::mt19937 random(1);
  for (int round = 0; round < 12; ++round) {
    std::string bytes(random() % 20000, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    if (round % 2 == 0)
      bytes.replace(0, std::min<std::size_t>(8, bytes.size()), "HOLDFAST",
                    std::min<std::size_t>(8, bytes.size()));
    write_text(file, bytes);
    for (const std::string command : {"show", "verify"}) {
      const Ended ended = holdfast({command, file});
      EXPECT_EQ(ended.exit_code, 1) << ended.err << ended.out;
    }
    EXPECT_EQ(holdfast({"ls", directory()}).exit_code, 0);
    expect_complaint(holdfast({"diff", file, file}), 2, "damaged");
  }
  // Names and links that nobody would make.
  write_text(path("step-99999999999999999999999-a0001.h5"), "");
  write_text(path("step-000000000001-a0001.h5 "), "");
  fs::create_symlink("/etc/passwd", path(checkpoint_name({9, 9})));
  fs::create_directory(path(checkpoint_name({8, 8})));
  const Ended ended = holdfast({"ls", directory()});
  EXPECT_EQ(ended.exit_code, 0);
  EXPECT_THAT(ended.out, HasSubstr("unreadable"));
  EXPECT_EQ(holdfast({"verify", directory()}).exit_code, 1);
}

TEST_F(Tool, NeverChangesAnything) {
  add(1, 1);
  flip(add(2, 1), 5000);
  const auto state = [&] {
    std::string all;
    for (const auto& entry : fs::directory_iterator(directory())) {
      all += entry.path().filename().string() + ":" + read_text(entry.path()) + "\n";
    }
    return all;
  };
  const std::string before = state();
  const std::string file = path(checkpoint_name({1, 1}));
  for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{
           {"ls", directory(), "--verify"}, {"show", file}, {"verify", directory()}, {"diff", file, file}}) {
    holdfast(command);
  }
  EXPECT_EQ(state(), before);
}

TEST_F(Tool, AFullOutputIsAnError) {
  const std::string file = add(1, 1);
  const Ended ended =
      Subprocess({"/bin/sh", "-c", HOLDFAST_BIN_DIR "/holdfast show '" + file + "' >/dev/full"}).wait();
  expect_complaint(ended, 2, "standard output");
}

}}  // namespace holdfast::test
