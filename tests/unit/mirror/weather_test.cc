// Bad weather at HOME, one kind a test: training goes on, it is said once, the record shows it, and it recovers by
// itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "holdfast/base/log.h"
#include "holdfast/mirror/rclone_home.h"
#include "holdfast/snapshot/arena.h"
#include "machine.h"
#include "support/captured_log.h"
#include "support/fault_file_system.h"
#include "support/subprocess.h"

namespace holdfast::test { namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using testing::HasSubstr;

struct Storm {
  const char* name;
  Op operation;
  int code;
};

class Weather : public testing::TestWithParam<Storm> {};

TEST_P(Weather, IsToldOnceAndPasses) {
  MemoryFileSystem quick;
  MemoryFileSystem safe;
  FaultFileSystem weather(safe);
  Machine* self = nullptr;
  int polls = 0;
  std::string failure;
  Machine machine(quick, weather, [&] {
    if (self == nullptr) return;
    // Training goes on meanwhile, and only its newest state matters.
    if (++polls == 500) self->save(20);
    const auto record = read_home_record(*quick.open_directory(kDir, false));
    if (polls == 1000 && record) failure = record->failure;
    if (polls == 2000) weather.clear_faults();
  });
  machine.prepare();
  machine.start_trainer();
  machine.save(10);
  Mirror mirror(machine.files, machine.verifier, *machine.home, {.directory = kDir}, machine.pace);
  mirror.add_claims({1});
  weather.fail(GetParam().operation, 1, GetParam().code, {.for_ever = true});
  self = &machine;
  mirror.finish();
  CapturedLog log;
  set_log_level(LogLevel::info);
  mirror.run();
  const std::string said = log.text();
  EXPECT_EQ(count_of(said, "tried again until it works"), 1) << said;
  EXPECT_EQ(count_of(said, "works again"), 1) << said;
  EXPECT_THAT(failure, HasSubstr(kHome));
  EXPECT_EQ(safe.get(home_file(1, 20)), quick.get(dir_file(1, 20)));
  const auto record = read_home_record(*quick.open_directory(kDir, false));
  EXPECT_EQ(record->failure, "");
  EXPECT_EQ(record->newest, (FileId{.attempt = 1, .step = 20}));
}

INSTANTIATE_TEST_SUITE_P(
    All, Weather,
    testing::Values(Storm{"full", Op::create, ENOSPC}, Storm{"full_in_the_middle", Op::write, ENOSPC},
                    Storm{"no_room_to_reserve", Op::reserve, EDQUOT},
                    Storm{"away", Op::open_directory, ENOTCONN}, Storm{"refuses", Op::create, EACCES},
                    Storm{"read_only", Op::rename_new, EROFS}, Storm{"listing_errs", Op::list, EIO},
                    Storm{"does_not_flush", Op::sync_file, EIO},
                    Storm{"does_not_flush_names", Op::sync_directory, EIO},
                    Storm{"cannot_be_read_back", Op::read, ESTALE}),
    [](const auto& info) { return std::string(info.param.name); });

class Home : public testing::Test {
 protected:
  Home() { set_log_level(LogLevel::error); }
  MemoryFileSystem quick;
  MemoryFileSystem safe;
};

// 10 kB/s: while a copy is under way, newer checkpoints appear. It is finished, and those between are skipped.
TEST_F(Home, ThatIsSlowGetsWholeCopiesOfTheNewest) {
  FaultFileSystem slow(safe);
  Machine* self = nullptr;
  std::int64_t step = 10;
  Machine machine(quick, slow, {}, 9);
  slow.set_hook([&](const Operation& operation) {
    if (operation.kind != Op::write || operation.path.find("tmp-") == std::string::npos) return;
    machine.clock.advance(2s);
    for (int i = 0; i < 2 && self != nullptr && step < 60; ++i) self->save(step += 10);
  });
  machine.prepare();
  machine.start_trainer(10);
  machine.save(10);
  self = &machine;
  machine.bring_home();
  EXPECT_EQ(safe.get(home_file(1, step)), quick.get(dir_file(1, step)));
  EXPECT_TRUE(safe.exists(home_file(1, 10))) << "a copy that has begun is finished";
  EXPECT_FALSE(safe.exists(home_file(1, 20)));
  EXPECT_GE(machine.mirror.record().took_ms, 2000) << "the planner counts with it";
}

TEST_F(Home, WithAHalfWrittenCopyGetsAWholeOne) {
  Machine machine(quick, safe);
  machine.prepare();
  machine.start_trainer();
  machine.save(10);
  std::vector<std::byte> half = quick.get(dir_file(1, 10));
  half.resize(half.size() / 2);
  safe.put(home_file(1, 10), half);
  machine.bring_home();
  EXPECT_EQ(safe.get(home_file(1, 10)), quick.get(dir_file(1, 10)));
}

// Claims and files are ordered by their numbers alone.
TEST_F(Home, IsIndependentOfClocksThatDiffer) {
  {
    MemoryFileSystem gone;
    Machine first(gone, safe);
    first.clock.shift_wall(24h * 365 * 20);
    first.prepare();
    first.start_trainer();
    first.save(10);
    first.bring_home();
  }
  Machine second(quick, safe);
  second.clock.shift_wall(-24h * 365 * 20);
  EXPECT_EQ(second.prepare().newest, (FileId{.attempt = 1, .step = 10}));
  second.start_trainer();
  second.save(20);
  second.bring_home();
  MemoryFileSystem other;
  Machine third(other, safe);
  EXPECT_EQ(third.prepare().newest, (FileId{.attempt = 2, .step = 20}));
}

// Verifies as another does, but its first looks fail as `first` does.
class Failing final : public Verifier {
 public:
  Failing(Verifier& inner, int times, std::function<void()> first)
      : inner_(inner), left_(times), first_(std::move(first)) {}
  Verdict inspect(const File& file, Depth depth, bool uncached) override {
    if (left_-- > 0) first_();
    return inner_.inspect(file, depth, uncached);
  }

 private:
  Verifier& inner_;
  int left_;
  const std::function<void()> first_;
};

// The trainer beside it has just taken the rest.
TEST_F(Home, GetsItsCopyOnceThereIsMemoryAgain) {
  Machine machine(quick, safe);
  machine.prepare();
  machine.start_trainer();
  machine.save(10);
  Failing verifier(machine.verifier, 2, [] { const Arena none(std::uint64_t{1} << 60); });
  Mirror mirror(machine.files, verifier, *machine.home, {.directory = kDir}, machine.pace);
  mirror.add_claims({1});
  mirror.finish();
  CapturedLog log;
  set_log_level(LogLevel::info);
  mirror.run();
  const std::string said = log.text();
  EXPECT_EQ(count_of(said, "no memory for an image"), 1) << said;
  EXPECT_EQ(count_of(said, "works again"), 1) << said;
  EXPECT_EQ(safe.get(home_file(1, 10)), quick.get(dir_file(1, 10)));
  EXPECT_FALSE(mirror.record().superseded);
}

TEST_F(Home, GetsItsCopyOnceTheRunDirectoryCanBeReadAgain) {
  FaultFileSystem sick(quick);
  Machine machine(sick, safe);
  machine.prepare();
  machine.start_trainer();
  machine.save(10);
  Mirror mirror(machine.files, machine.verifier, *machine.home, {.directory = kDir}, machine.pace);
  mirror.add_claims({1});
  mirror.finish();
  for (const int nth : {1, 2, 3}) sick.fail(Op::open_directory, nth, EIO);
  mirror.run();
  EXPECT_EQ(sick.faults_fired(), 3);
  EXPECT_EQ(safe.get(home_file(1, 10)), quick.get(dir_file(1, 10)));
}

// A name that a sync could not write is made once more: a later sync says nothing about it.
TEST_F(Home, ThatLostANameGetsItAgain) {
  int commits = 0;  // the sync behind the copy's rename
  for (const bool fails : {false, true}) {
    MemoryFileSystem disk;
    MemoryFileSystem store;
    FaultFileSystem weather(store);
    Machine machine(disk, weather);
    machine.prepare();
    machine.start_trainer();
    machine.save(10);
    Mirror mirror(machine.files, machine.verifier, *machine.home, {.directory = kDir}, machine.pace);
    mirror.add_claims({1});
    mirror.finish();
    int syncs = 0;
    weather.set_hook([&](const Operation& operation) {
      if (operation.kind == Op::sync_directory) ++syncs;
      if (operation.kind == Op::rename_new && !fails) commits = syncs + 1;
    });
    weather.clear_log();
    if (fails) weather.fail(Op::sync_directory, commits, EIO);
    EXPECT_TRUE(mirror.run());
    EXPECT_EQ(weather.faults_fired(), fails ? 1 : 0);
    EXPECT_EQ(weather.count(Op::rename_new), 1) << "the name stays; the new copy takes it over";
    EXPECT_EQ(mirror.record().newest, (FileId{.attempt = 1, .step = 10}));
    EXPECT_TRUE(store.crash().exists(home_file(1, 10)));
    EXPECT_EQ(store.crash().get(home_file(1, 10)), disk.get(dir_file(1, 10)));
  }
}

// A trainer that is restarted meanwhile needs a further claim.
TEST_F(Home, ThatFailsToFlushOnceCanBeClaimedFurther) {
  for (const int nth : {1, 2}) {  // of `attempts`, and of the run directory
    MemoryFileSystem store;
    FaultFileSystem weather(store);
    Machine machine(quick, weather);
    EXPECT_EQ(machine.home->claim(5), 5U);
    weather.fail(Op::sync_directory, nth, EIO);
    EXPECT_THROW(machine.home->claim(6), IoError);
    EXPECT_EQ(machine.home->claim(6), 7U);
    machine.home->check_not_superseded();
    EXPECT_TRUE(store.crash().exists(kHome + "/attempts/7"));
  }
}

// The folder below a mount point is not HOME, whatever lies there.
TEST_F(Home, WhoseVolumeHasGoneIsWaitedFor) {
  FaultFileSystem weather(safe);
  Machine machine(quick, weather);
  machine.prepare();
  machine.start_trainer();
  machine.save(10);
  weather.fail(Op::sync_file, 1, EIO);
  EXPECT_THROW(machine.bring_home(), IoError);
  MemoryFileSystem volume = std::exchange(safe, MemoryFileSystem());
  safe.open_directory(kHome, true)->open_directory("attempts", true);
  EXPECT_THROW(machine.bring_home(), IoError);
  safe = std::move(volume);
  machine.bring_home();
  EXPECT_TRUE(safe.exists(home_file(1, 10)));
}

// No other machine is to blame, and `holdfast status` shows why nothing goes home.
TEST_F(Home, ThatIsRefusedForGoodIsToldInTheRecord) {
  Machine machine(quick, safe);
  machine.prepare();
  machine.start_trainer();
  machine.save(10);
  Failing verifier(machine.verifier, 1, [] { throw RefusedError("never again"); });
  Mirror mirror(machine.files, verifier, *machine.home, {.directory = kDir}, machine.pace);
  mirror.add_claims({1});
  EXPECT_THROW(mirror.run(), RefusedError);
  const auto record = read_home_record(*quick.open_directory(kDir, false));
  EXPECT_EQ(record->failure, "never again");
  EXPECT_NE(record->failing_since, "");
  EXPECT_FALSE(record->superseded);
}

// A store whose credentials expire in the middle of an upload.
constexpr char kStore[] = R"sh(#!/bin/sh
here=$(dirname "$0")
expired() { echo "ERROR : ExpiredToken: The provided token has expired" >&2; exit 1; }
[ -f "$here/expired" ] && expired
while [ "${1#--}" != "$1" ]; do shift; done
verb=$1; shift
while [ "${1#--}" != "$1" ]; do shift; done
root="$here/store/"
case $verb in
  lsjson) d="$root${1#fake:}"; [ -d "$d" ] || exit 3
    printf '[{"Path":"x","Name":"x","Size":-1,"IsDir":true}\n'; cd "$d"
    find . -maxdepth 2 -type f -printf ',{"Path":"%P","Name":"%f","Size":%s,"IsDir":false}\n'
    printf ']';;
  rcat) f="$root${1#fake:}"; mkdir -p "$(dirname "$f")"; cat >"$f";;
  copyto) f="$root${2#fake:}"
    if [ -f "$here/soon" ]; then mv "$here/soon" "$here/expired"; head -c 4096 "$1" >"$f"; expired; fi
    cp "$1" "$f";;
  cat) f="$root${1#fake:}"; [ -f "$f" ] || exit 4; cat "$f";;
  deletefile) f="$root${1#fake:}"; [ -f "$f" ] || exit 4; rm "$f";;
esac
)sh";

TEST(Store, WhoseCredentialsExpireGetsTheWholeCopyLater) {
  TemporaryFolder folder;
  const fs::path tools = folder.path() / "tools";
  fs::create_directories(tools);
  write_text(tools / "rclone", kStore);
  chmod((tools / "rclone").c_str(), 0755);
  const std::string before = getenv("PATH");
  setenv("PATH", (tools.native() + ":" + before).c_str(), 1);
  const fs::path run = folder.path() / "run";
  FakeClock clock;
  ToyVerifier verifier;
  std::string failure;
  Pace pace(clock, 0, [&] {
    const auto directory = FileSystem::real().open_directory(run, false);
    const auto record = directory ? read_home_record(*directory) : std::nullopt;
    if (!record || record->failure.empty()) return;
    failure = record->failure;
    fs::remove(tools / "expired");  // somebody renews them
  });
  const auto home = open_home({.place = "rclone:fake:bucket/run"}, FileSystem::real(), verifier, pace);
  const PreparedStart start = prepare_start(FileSystem::real(), verifier, run, *home, pace);
  CheckpointStore trainer(FileSystem::real(), clock, {.directory = run}, verifier);
  trainer.preflight();
  trainer.claim();
  trainer.recover();
  trainer.commit(toy_request({.step = 10, .attempt = 1, .body_blocks = 3}));
  write_text(tools / "soon", "");
  Mirror mirror(FileSystem::real(), verifier, *home, {.directory = run}, pace);
  mirror.add_claims(start.claims);
  mirror.finish();
  CapturedLog log;
  set_log_level(LogLevel::info);
  mirror.run();
  setenv("PATH", before.c_str(), 1);
  EXPECT_THAT(failure, HasSubstr("ExpiredToken"));
  EXPECT_THAT(log.text(), HasSubstr("works again"));
  const std::string name = checkpoint_name({.attempt = 1, .step = 10});
  EXPECT_EQ(read_text(tools / "store/bucket/run" / name), read_text(run / name));
}

}}  // namespace holdfast::test
