// What lies beside the checkpoints decides nothing: claims, states and ledgers may be torn, empty, stale or
// garbage, and the run goes on where its newest checkpoint is.
#include <gtest/gtest.h>

#include "holdfast/store/run_state.h"
#include "lane.h"

namespace holdfast::test::corruption { namespace {

std::string place(const std::string& name) { return std::string(kRun) + "/" + name; }

const std::vector<std::string>& contents() {
  static const std::vector<std::string> texts = {
      "",
      "\n",
      "{",
      "null",
      "[]",
      std::string(4096, '\0'),
      std::string(70000, 'x'),
      std::string(100000, '['),
      "\xff\xfe\x80 not text",
      R"({"attempt":99,"phase":"complete","durable_step":1000000})",
      R"({"attempt":-1,"phase":"complete"})",
      R"({"attempt":18446744073709551615,"phase":"running","step":1e300})",
      R"({"attempt":2,"phase":"complete","exit_code":0,"step":9,"durable_step":9,"checkpoint":"../../etc/passwd"})",
      R"({"event":"step","step":6,"loss":"zz"})"
      "\n",
      R"({"step":7,"loss":)",
      R"({"event":"start","attempt":2,"step":4,"from_attempt":2})"
      "\n" +
          std::string(50000, '{')};
  return texts;
}

constexpr Expected kFromTheNewest{.step = 8, .named = {}};

TEST(SmallFiles, GarbageInEachOfThem) {
  for (const std::string name : {"RUN_STATE.json", "attempts/1", "attempts/2", "attempts/1.state.json",
                                 "attempts/2.state.json", "ledger-a0001.jsonl", "ledger-a0002.jsonl"}) {
    ASSERT_TRUE(history().disk().exists(place(name))) << name;
    for (std::size_t i = 0; i < contents().size(); ++i) {
      MemoryFileSystem disk = history().disk();
      disk.put(place(name), contents()[i]);
      lane().goes_on("garbage " + std::to_string(i) + " in " + name, disk, kFromTheNewest);
    }
  }
}

TEST(SmallFiles, TornAtEveryEighthByte) {
  for (const std::string name :
       {"RUN_STATE.json", "attempts/2", "attempts/2.state.json", "ledger-a0002.jsonl"}) {
    const std::string text = history().disk().get_text(place(name));
    for (std::size_t length = 0; length < text.size(); length += 8) {
      MemoryFileSystem disk = history().disk();
      disk.put(place(name), std::string_view(text).substr(0, length));
      Expected expected = kFromTheNewest;
      expected.whole = length % 64 == 0;
      lane().goes_on(name + " cut to " + std::to_string(length), disk, expected);
    }
  }
}

TEST(SmallFiles, GarbageInAllOfThem) {
  for (const std::string& text : contents()) {
    MemoryFileSystem disk = history().disk();
    for (const std::string& name : disk.names(kRun)) {
      if (!name.starts_with("step-") && name != "attempts") disk.put(place(name), text);
    }
    for (const std::string& name : disk.names(place("attempts"))) disk.put(place("attempts/" + name), text);
    lane().goes_on("garbage in all of them", disk, kFromTheNewest);
  }
}

TEST(SmallFiles, NamesThatAreNobodys) {
  for (const std::string name :
       {"attempts/-1", "attempts/0", "attempts/02", "attempts/99999999999999999999999", "attempts/2.state",
        "attempts/x.state.json", "attempts/ 3", "step-8.h5", "step-000000000099-a0002.h5.tmp", "tmp-a",
        "tmp-a0001-", "tmp-a0001-step-10-1", "tmp-a9", "ledger-a0000.jsonl", "lost+found", "core",
        "\xff\xfe"}) {
    MemoryFileSystem disk = history().disk();
    disk.put(place(name), std::string_view("garbage"));
    lane().goes_on(name + " lies there", disk, kFromTheNewest);
  }
}

// Claims are names; a run whose claims are gone goes on with the attempt after its newest file's.
TEST(SmallFiles, AllOfThemGone) {
  MemoryFileSystem disk = history().disk();
  const auto run = disk.open_directory(kRun, false);
  for (const std::string& name : disk.names(kRun)) {
    if (!name.starts_with("step-") && name != "attempts") run->unlink(name);
  }
  const auto attempts = run->open_directory("attempts", false);
  for (const std::string& name : disk.names(place("attempts"))) attempts->unlink(name);
  lane().goes_on("claims, states and ledgers are gone", disk, kFromTheNewest);
  Volume volume;
  volume.disk = disk.copy();
  const Attempt attempt(volume.options());
  EXPECT_EQ(attempt.checkpointer.attempt(), 3U);
}

// What a state says of the run is believed of the highest attempt only, and by nobody who starts one.
TEST(SmallFiles, AStaleStateThatClaimsToBeComplete) {
  RunState stale;
  stale.attempt = 1;
  stale.phase = RunPhase::complete;
  stale.step = 1000;
  stale.durable_step = 1000;
  stale.checkpoint = "step-000000001000-a0001.h5";
  const auto told = [](MemoryFileSystem& disk) {
    const auto state = read_run_state(*disk.open_directory(kRun, false));
    if (!state) return std::string("nothing");
    return "attempt " + std::to_string(state->attempt) + ", step " + std::to_string(state->step);
  };
  MemoryFileSystem disk = history().disk();
  const std::string own = told(disk);
  EXPECT_EQ(own.substr(0, 9), "attempt 2");

  disk.put(place("RUN_STATE.json"), to_json(stale));
  lane().judged("a stale RUN_STATE.json is believed", told(disk) == own ? "" : told(disk), told(disk) != own);
  lane().goes_on("a stale RUN_STATE.json", disk, kFromTheNewest);
  for (const char* const name : {"attempts/2.state.json", "attempts/1.state.json"}) {
    disk.put(place(name), to_json(stale));
    const bool silent = told(disk).starts_with("attempt 1");
    lane().judged(std::string("it is believed in ") + name, silent ? told(disk) : "", silent);
    lane().goes_on(std::string("and a stale ") + name, disk, kFromTheNewest);
  }
  // A future one is not believed either: no claim, no file tells of that attempt.
  stale.attempt = 50;
  disk.put(place("RUN_STATE.json"), to_json(stale));
  lane().judged("a state of an attempt that never was", told(disk) == "nothing" ? "" : told(disk));
  lane().goes_on("a state of an attempt that never was", disk, kFromTheNewest);
}

}}  // namespace holdfast::test::corruption
