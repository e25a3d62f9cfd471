// A second, safer place for the checkpoints of a run directory. HOME is a directory on another volume
// (directory_home.h), or a store that the program rclone speaks to (rclone_home.h).
//
//   home.claim(least);                  // fences off every older owner of HOME
//   home.put({id, file, bytes});        // returns when the copy is durable there, and every byte verified
//   home.retire(id);                    // deletes what is superfluous; never below two
//
// Who has the highest claim owns HOME. A machine that uploads late adds a checkpoint of an older attempt.
//
// Errors: IoError or HomeError if HOME refuses, or does not hold what was written: try again later.
// SupersededError: somebody else has a higher claim; for good. Exceptions of Pace pass through.
// Threads: one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "holdfast/base/error.h"
#include "holdfast/io/file_system.h"
#include "holdfast/store/copy_verifier.h"
#include "holdfast/store/names.h"

namespace holdfast { inline namespace v0_2 {

// HOME did not do what it was asked to do.
class HomeError : public Error {
 public:
  explicit HomeError(const std::string& message) : Error(message, ExitCode::io_failed) {}
};

// The copy there is not equal to its source, or the source is not what its index says.
class CopyDiffers : public HomeError {
 public:
  using HomeError::HomeError;
};

// The run directory's retention deleted the source before its copy began: a newer checkpoint is there.
class SourceGone : public HomeError {
 public:
  using HomeError::HomeError;
};

struct HomeFile {
  FileId id;
  std::uint64_t bytes = 0;
};

// An open checkpoint of the run directory, and what its head says.
struct MirrorSource {
  FileId id;
  std::string path = {};  // for programs that open it themselves
  const File* file = nullptr;
  std::uint64_t bytes = 0;
  Ancestry ancestry = {};
  bool finite = true;
};

// Takes the bytes of a file in order.
using ByteSink = std::function<void(std::span<const std::byte>)>;

class Home {
 public:
  virtual ~Home() = default;

  virtual const std::string& name() const = 0;  // as the user wrote it
  // The highest attempt in the names of claims and files there; 0: none. Changes nothing.
  virtual AttemptNumber highest() = 0;
  // Claims a number that is higher than all there, and `least` at least. Claims are durable on return. May be
  // called again, for another life of the trainer.
  virtual AttemptNumber claim(AttemptNumber least) = 0;
  // For those that must fence nobody off. Claims a number above `after`, the highest that the caller has
  // seen, and `least` at least. 0: another machine has claimed one meanwhile, or may just do so; nothing of
  // this call stays. If it throws, call it again with the same `after`: a claim may lie there, and counts as
  // this object's.
  virtual AttemptNumber claim_after(AttemptNumber after, AttemptNumber least = 0) = 0;
  // True if this object has claimed that number, `highest()`, and nobody else has; perhaps by a call that
  // threw.
  virtual bool is_own(AttemptNumber highest) = 0;
  virtual void check_not_superseded() = 0;
  // Checkpoints there, newest first. Names alone: a file may be incomplete.
  virtual std::vector<HomeFile> list() = 0;
  // Requires claim(). The same, in the order in which a start tries them.
  virtual std::vector<HomeFile> starts() { return list(); }
  // Requires claim(). Tells later owners of HOME that this one goes on from `start`. What an older owner
  // uploads after this, and what is newer than `start`, stands back behind it in starts().
  virtual void begin_from(FileId /*start*/) {}
  // Requires claim(). A file of that name that is damaged is replaced or set aside.
  virtual void put(const MirrorSource& source) = 0;
  // Requires claim(). True if the copy there has every byte of `source`, and a durable name. Reads all of it.
  virtual bool holds(const MirrorSource& source) = 0;
  // Deletes what retention does not keep, after put() or holds() of `newest`.
  virtual void retire(const MirrorSource& newest) = 0;
  virtual void read(const HomeFile& file, const ByteSink& sink) = 0;
  // Each question is a request that may cost money, and starts a program: ask seldom.
  virtual bool is_store() const { return false; }
  // Small texts in `attempts` (home_notes.h); at most 4096 bytes. nullopt: there is none.
  virtual std::optional<std::string> note(const std::string& name) = 0;
  // A directory where nobody has ever claimed takes no note.
  virtual void put_note(const std::string& name, const std::string& text) = 0;
  virtual void remove_note(const std::string& name) = 0;
  // Compiled GPU kernels (kernel_files.h): those of `folder`, in the run directory, that HOME lacks go there;
  // those of HOME come. HOME may have none.
  virtual void put_kernels(Directory& folder) = 0;
  virtual void fetch_kernels(Directory& folder) = 0;
};

struct HomeOptions {
  std::string place = {};  // a directory, or rclone:REMOTE:PATH
  int keep = 3;            // newest checkpoints that stay there; at least 2
  // Mount point of a directory's volume: claims fail until it is mounted. Empty: no check.
  std::filesystem::path mount = {};
};

// "/efs/run1/" and "/efs/run1" are one place; HOME_STATE.json compares names.
std::string without_slashes(std::string place);

class Pace;
// Contacts nothing yet. `pace`, `file_system` and `verifier` outlive the result.
// Errors: UsageError for a malformed place.
std::unique_ptr<Home> open_home(const HomeOptions& options, FileSystem& file_system, CopyVerifier& verifier,
                                Pace& pace);

}}  // namespace holdfast::v0_2
