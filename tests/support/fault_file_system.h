// Put in front of any FileSystem: counts and logs every operation, lets the N-th fail, and calls a hook
// before each one, so that a test can let a rival act exactly there.
//
//   FaultFileSystem faults(memory);
//   faults.fail_mutation(7, EIO);                       // the 7th mutating operation, counted from now
//   faults.fail(Op::sync_file, 1, EIO, {.for_ever = true});
//   faults.set_hook([&](const Operation& op) { if (op.kind == Op::rename_new) rival.commit(…); });
//
// A failing operation throws IoError and leaves the inner file system alone, with two exceptions: a short
// write writes the first half before it fails, and a failing sync of a MemoryFileSystem's file loses what was
// not synced, as Linux does. Operations made inside the hook (through this object or another) run unlogged,
// uncounted and without faults.
//
// Threads: any. Lifetime: outlives its handles; the inner file system outlives it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "holdfast/io/file_system.h"

namespace holdfast::test {

enum class Op {
  open_directory,  // with `create`: mutating
  open_read,
  open_overwrite,
  create,
  open_append,
  status,
  list,
  read,
  write,
  reserve,
  truncate,
  sync_file,
  close,
  rename_new,
  rename_over,
  unlink,
  sync_directory,
};
std::string_view name_of(Op op);

struct Operation {
  Op kind = Op::status;
  std::string path = {};     // in full
  std::string to = {};       // target name of a rename
  std::uint64_t offset = 0;  // read, write; length of reserve and truncate
  std::uint64_t length = 0;  // read, write
  bool mutating = false;     // could change what a crash leaves
  bool failed = false;       // a planned fault fired here
  std::string text() const;  // "rename_new /run/a -> b"
};

struct FaultOptions {
  bool for_ever = false;     // that one and all later ones of its kind
  bool short_write = false;  // writes half of the bytes first
  bool after = false;        // does the operation, then fails: the caller does not know that it happened
};

class FaultFileSystem final : public FileSystem {
 public:
  explicit FaultFileSystem(FileSystem& inner);
  ~FaultFileSystem() override;

  std::unique_ptr<Directory> open_directory(const std::filesystem::path& path, bool create) override;
  std::unique_ptr<File> open_file(const std::filesystem::path& path, OpenMode mode) override;
  bool is_mount_point(const std::filesystem::path& path) const override;
  bool on_root_file_system(const std::filesystem::path& path) const override;

  // The `nth` (from 1) operation from now on fails. Several faults may be planned at once.
  void fail_mutation(int nth, int code, FaultOptions options = {});
  void fail(Op kind, int nth, int code, FaultOptions options = {});
  void fail_any(int nth, int code, FaultOptions options = {});  // mutating or not
  void clear_faults();
  int faults_fired() const;

  // Called before each operation, before faults are looked at. May throw: the operation then does not happen.
  void set_hook(std::function<void(const Operation&)> hook);

  std::vector<Operation> log() const;
  // The mutating ones as text, for comparing whole histories.
  std::vector<std::string> mutations() const;
  int count(Op kind) const;
  int mutation_count() const;
  void clear_log();

  struct State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace holdfast::test
