// A machine of a run with two tiers: its own quick disk, which dies with it, and the HOME that all share. A
// machine that ends without ceremony was killed.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "holdfast/mirror/directory_home.h"
#include "holdfast/mirror/mirror.h"
#include "holdfast/mirror/start.h"
#include "holdfast/store/lineage.h"
#include "prepare_start.h"
#include "support/fake_clock.h"
#include "support/memory_file_system.h"
#include "support/toy_format.h"

namespace holdfast::test {

// Under a sanitizer, which is there for other things, an eighth of the repetitions.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr int kSlower = 8;
#else
inline constexpr int kSlower = 1;
#endif

// Thrown by a planned end of the machine.
struct Killed : std::exception {};

inline std::int64_t count_of(const std::string& text, const std::string& part) {
  std::int64_t count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

inline const std::filesystem::path kDir = "/nvme/run";
inline const std::string kHome = "/efs/run";

// Both tiers as one FileSystem, by the first component of the path.
class TwoTiers final : public FileSystem {
 public:
  TwoTiers(FileSystem& quick, FileSystem& safe) : quick_(quick), safe_(safe) {}
  std::unique_ptr<Directory> open_directory(const std::filesystem::path& path, bool create) override {
    return of(path).open_directory(path, create);
  }
  std::unique_ptr<File> open_file(const std::filesystem::path& path, OpenMode mode) override {
    return of(path).open_file(path, mode);
  }
  bool is_mount_point(const std::filesystem::path& path) const override {
    return of(path).is_mount_point(path);
  }
  bool on_root_file_system(const std::filesystem::path& path) const override {
    return of(path).on_root_file_system(path);
  }

 private:
  FileSystem& of(const std::filesystem::path& path) const {
    return path.native().starts_with("/efs") ? safe_ : quick_;
  }
  FileSystem& quick_;
  FileSystem& safe_;
};

// What a machine's start tells about the past: the checkpoint that it goes on from, and all that grew into it.
inline bool in_history(FileId home, FileId start, const Ancestry& ancestry) {
  if (home == start) return true;
  if (home.attempt == start.attempt) return home.step <= start.step;
  return Lineage{.own = start.attempt, .ancestry = ancestry}.contains(home);
}

class Machine : public History {
 public:
  // `poll`: called between the blocks of a copy, and while the mirror waits.
  Machine(FileSystem& quick, FileSystem& safe, std::function<void()> poll = {}, int keep = 3,
          double limit = 0)
      : files(quick, safe),
        pace(clock, limit, std::move(poll)),
        home(std::make_unique<DirectoryHome>(HomeOptions{.place = kHome, .keep = keep}, files, verifier,
                                             pace)),
        mirror(files, verifier, *home, {.directory = kDir, .once = true}, pace) {}

  // Prepares a start, as supervise does; or as a standby does, which has claimed that number.
  PreparedStart prepare(AttemptNumber claimed = 0) {
    PreparedStart start = prepare_start(files, verifier, kDir, *home, pace, claimed);
    mirror.add_claims(start.claims);
    return start;
  }
  // The trainer's part of a start.
  AttemptNumber start_trainer(int keep = 3) {
    trainer.emplace(files, clock, StoreOptions{.directory = kDir, .keep = KeepLast{keep}}, verifier);
    trainer->preflight();
    trainer->claim();
    go_on_from(trainer->recover());
    return trainer->attempt();
  }
  FileId save(std::int64_t at) {
    trainer->commit(
        toy_request({.step = at, .attempt = trainer->attempt(), .ancestry = ancestry, .body_blocks = 3}));
    trainer->apply_retention();
    step = at;
    return {.attempt = trainer->attempt(), .step = at};
  }
  // Until all that should be home is.
  void bring_home() { mirror.run(); }

  FakeClock clock;
  TwoTiers files;
  ToyVerifier verifier;
  Pace pace;
  std::unique_ptr<DirectoryHome> home;
  Mirror mirror;
  std::optional<CheckpointStore> trainer;
};

// A machine that trained these steps, brought each home, and vanished.
inline void live(FileSystem& quick, FileSystem& safe, std::initializer_list<std::int64_t> steps) {
  Machine machine(quick, safe);
  machine.prepare();
  machine.start_trainer();
  for (const std::int64_t step : steps) {
    machine.save(step);
    machine.bring_home();
  }
}

inline std::string home_file(AttemptNumber attempt, std::int64_t step) {
  return kHome + "/" + checkpoint_name({.attempt = attempt, .step = step});
}
inline std::filesystem::path dir_file(AttemptNumber attempt, std::int64_t step) {
  return kDir / checkpoint_name({.attempt = attempt, .step = step});
}

}  // namespace holdfast::test
