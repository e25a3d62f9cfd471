// Names, attributes and texts that somebody else wrote reach a terminal as plain text: no ESC, no C1 control,
// no mark that turns the direction of writing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/io/file_system.h"
#include "holdfast/store/names.h"
#include "holdfast/store/run_state.h"
#include "support/ledger_text.h"
#include "support/subprocess.h"
#include "unit/format/checkpoint_maker.h"

namespace holdfast::test { namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

// ESC [, C1's CSI, two bidirectional marks, DEL; without a slash, so that it may be a file's name.
constexpr char kHostile[] = "x\x1b[31m\xc2\x9b\x32J\xe2\x80\xae\xd8\x9c\x7fy";
// Tensor names hold no C0 control.
constexpr char kHostileTensor[] = "model/x\xc2\x9b\x32J\xe2\x80\xae\xe2\x81\xa6y";

void expect_harmless(const std::string& text, const std::string& of) {
  for (const char* bad : {"\x1b", "\x7f", "\xc2\x9b", "\xe2\x80\xae", "\xe2\x81\xa6", "\xd8\x9c"}) {
    EXPECT_EQ(text.find(bad), std::string::npos) << of << ": " << testing::PrintToString(text);
  }
}

class HostileNames : public testing::Test {
 protected:
  HostileNames() {
    fs::create_directories(fs::path(directory()) / "attempts");
    std::vector<TensorSpec> tensors = small_tensors();
    tensors.push_back({kHostileTensor, DType::float32, {3}});
    const std::string in_one_file = std::string(kHostileTensor) + "2";
    for (const std::int64_t step : {1, 2}) {
      Attributes attributes = small_attributes();
      attributes.set("run.attempt", std::int64_t{1}, Role::record);
      attributes.set("run.host", std::string(kHostile), Role::record);
      attributes.set("run.time", std::string(kHostile), Role::record);
      attributes.set("option", std::string(kHostile) + std::to_string(step));
      if (step == 2) tensors.push_back({in_one_file, DType::float32, {3}});
      const Made made = make_snapshot(tensors, attributes, step, 8192);
      write(FileSystem::real(), file(step), made);
    }
    RunState state;
    state.attempt = 1;
    state.phase = RunPhase::failed;
    state.reason = state.host = state.time = kHostile;
    write_text(fs::path(directory()) / "attempts/1", "");
    write_text(fs::path(directory()) / "attempts/1.state.json", to_json(state));
    LedgerText ledger(1, 0, 0, 1'000'000, 10, "a");
    ledger.line(
        "end", 60,
        R"("phase":"failed","code":74,"step":9,"ending_ms":1,"reason":)" + nlohmann::json(kHostile).dump());
    write_text(fs::path(directory()) / ledger_name(1), ledger.text());
  }
  std::string directory() const { return folder_.path() / kHostile; }
  std::string file(std::int64_t step) const { return fs::path(directory()) / checkpoint_name({1, step}); }
  void expect_harmless_command(std::vector<std::string> arguments) const {
    const std::string of = arguments[0];
    arguments.insert(arguments.begin(), HOLDFAST_BIN_DIR "/holdfast");
    const Ended ended = Subprocess(std::move(arguments)).wait();
    EXPECT_EQ(ended.signal, 0) << of;
    EXPECT_NE(ended.out + ended.err, "") << of;
    expect_harmless(ended.out, of);
    expect_harmless(ended.err, of + " (errors)");
  }

  TemporaryFolder folder_;
};

TEST_F(HostileNames, ReachNoTerminalThroughACommand) {
  expect_harmless_command({"ls", directory(), "--verify"});
  expect_harmless_command({"ls", directory(), "--json"});
  expect_harmless_command({"show", file(1)});
  expect_harmless_command({"show", file(1), "--json"});
  expect_harmless_command({"verify", directory()});
  expect_harmless_command({"verify", file(1)});
  expect_harmless_command({"verify", file(1), "--json"});
  expect_harmless_command({"diff", file(1), file(2)});
  expect_harmless_command({"diff", file(1), file(2), "--json"});
  expect_harmless_command({"status", directory(), "--json"});
  expect_harmless_command({"report", directory()});
  expect_harmless_command({"report", directory(), "--json"});
  expect_harmless_command({"prune", directory(), "--dry-run"});
}

TEST_F(HostileNames, ReachNoTerminalThroughAnError) {
  for (const std::string command : {"ls", "show", "verify", "report"}) {
    expect_harmless_command({command, directory() + "/nothing" + kHostile});
  }
  expect_harmless_command({kHostile});
  expect_harmless_command({"ls", directory(), std::string("--") + kHostile});
  expect_harmless(IoError("open", kHostile, 5).what(), "an error");
  EXPECT_EQ(IoError("open", kHostile, 5).path(), kHostile) << "the path itself is for programs";
}

TEST_F(HostileNames, ReachNoTerminalThroughTheLog) {
  testing::internal::CaptureStderr();
  log_warning("skipped {}: {}", kHostile, kHostileTensor);
  log_message(LogLevel::error, kHostile);
  print_line(kHostile);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("x\\x1b[31m"));
  expect_harmless(log, "the log");
}

}}  // namespace holdfast::test
