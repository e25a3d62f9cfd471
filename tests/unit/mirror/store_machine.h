// A machine whose HOME is a store, and a script in rclone's place, which fails or ends the machine where a test says so.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "holdfast/base/log.h"
#include "holdfast/mirror/home.h"
#include "holdfast/mirror/mirror.h"
#include "holdfast/mirror/start.h"
#include "machine.h"
#include "prepare_start.h"
#include "support/fake_clock.h"
#include "support/subprocess.h"
#include "support/toy_format.h"

namespace holdfast::test {

// The calls of rclone that a mirror makes, on a folder. It counts its calls, and plays a fault: "N CODE WHEN";
// where a machine dies, it tells so, and waits to be killed.
inline constexpr char kRcloneScript[] = R"sh(#!/bin/sh
here=${0%/*}
n=0; [ -f "$here/count" ] && read n <"$here/count"; n=$((n+1)); echo $n >"$here/count"
when=never
if [ -f "$here/fault" ]; then read at code when <"$here/fault"; [ "$n" = "$at" ] || when=never; fi
die() { touch "$here/dead"; exec sleep 100; }
work() {
  while [ "${1#--}" != "$1" ]; do [ "$1" = --bwlimit ] && shift; shift; done
  verb=$1; shift
  while [ "${1#--}" != "$1" ]; do shift; done
  root="$here/store/"
  case $verb in
    lsjson) cd "$root${1#fake:}" 2>/dev/null || return 3
      printf '[{"Path":"x","Name":"x","Size":-1,"IsDir":true}\n'
      find . -maxdepth 2 -type f -printf ',{"Path":"%P","Name":"%f","Size":%s,"IsDir":false}\n'
      printf ']';;
    rcat) f="$root${1#fake:}"; mkdir -p "${f%/*}"; cat >"$f";;
    copyto) f="$root${2#fake:}"; mkdir -p "${f%/*}"; cp "$1" "$f";;
    cat) f="$root${1#fake:}"; [ -f "$f" ] || return 4; cat "$f";;
    deletefile) f="$root${1#fake:}"; [ -f "$f" ] || return 4; rm "$f";;
    *) return 1;;
  esac
}
[ "$when" = before ] && { echo "planned failure" >&2; exit $code; }
[ "$when" = dies-before ] && die
work "$@"; rc=$?
echo $n >"$here/ended"
[ "$when" = dies-after ] && die
[ "$when" = after ] && { echo "planned failure" >&2; exit $code; }
exit $rc
)sh";

class Rclone : public testing::Test {
 protected:
  Rclone() {
    set_log_level(LogLevel::off);
    tools_ = folder_.path() / "tools";
    std::filesystem::create_directories(tools_);
    write_text(tools_ / "rclone", kRcloneScript);
    chmod((tools_ / "rclone").c_str(), 0755);
    before_ = getenv("PATH");
    setenv("PATH", (tools_.native() + ":" + before_).c_str(), 1);
  }
  ~Rclone() override { setenv("PATH", before_.c_str(), 1); }

  std::filesystem::path store() const { return tools_ / "store/bucket/run"; }
  std::filesystem::path at_home(FileId id) const { return store() / checkpoint_name(id); }
  void fault(int nth, int code, const std::string& when) const {
    std::filesystem::remove(tools_ / "count");
    write_text(tools_ / "fault", std::to_string(nth) + " " + std::to_string(code) + " " + when + "\n");
  }
  int calls() const { return std::stoi("0" + read_text(tools_ / "count")); }
  // For a Pace: the machine dies where the script says so.
  std::function<void()> dying() const {
    return [dead = tools_ / "dead"] {
      if (std::filesystem::exists(dead)) throw Killed();
    };
  }
  void no_faults() const {
    std::filesystem::remove(tools_ / "dead");
    std::filesystem::remove(tools_ / "fault");
    std::filesystem::remove(tools_ / "count");
  }

  TemporaryFolder folder_;
  std::filesystem::path tools_;
  std::string before_;
};

class StoreMachine : public History {
 public:
  StoreMachine(const std::filesystem::path& directory, const std::string& place = "rclone:fake:bucket/run",
               int keep = 3, std::function<void()> poll = {})
      : pace(clock, 0, std::move(poll)),
        directory_(directory),
        home(open_home({.place = place, .keep = keep}, FileSystem::real(), verifier, pace)),
        mirror(FileSystem::real(), verifier, *home, {.directory = directory, .once = true}, pace) {}
  PreparedStart prepare() {
    PreparedStart start = prepare_start(FileSystem::real(), verifier, directory_, *home, pace);
    mirror.add_claims(start.claims);
    trainer.emplace(FileSystem::real(), clock, StoreOptions{.directory = directory_}, verifier);
    trainer->preflight();
    trainer->claim();
    go_on_from(trainer->recover());
    return start;
  }
  FileId save(std::int64_t at) {
    trainer->commit(toy_request({.step = at, .attempt = trainer->attempt(), .ancestry = ancestry}));
    step = at;
    return {.attempt = trainer->attempt(), .step = at};
  }

  FakeClock clock;
  Pace pace;
  const std::filesystem::path directory_;
  ToyVerifier verifier;
  std::unique_ptr<Home> home;
  Mirror mirror;
  std::optional<CheckpointStore> trainer;
};

}  // namespace holdfast::test
