// Wraps any FileSystem: counts and logs all operations, makes the N-th one fail, and calls a hook before each
// operation, in which a test can let a rival act.
//
//   FaultFileSystem faults(memory);
//   faults.fail_mutation(7, EIO);                       // the 7th mutating operation from now
//   faults.fail(Op::sync_file, 1, EIO, {.for_ever = true});
//   faults.set_hook([&](const Operation& op) { if (op.kind == Op::rename_new) rival.commit(…); });
//
// Threads: any. Outlives its handles; the inner file system outlives it.
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
  bool failed = false;       // a planned fault fired
  std::string text() const;  // "rename_new /run/a -> b"
};

struct FaultOptions {
  bool for_ever = false;     // also all later operations of its kind
  bool short_write = false;  // first writes half of the bytes
  bool loses_names = false;  // a failed sync of a directory: no later one makes its unsynced names durable
  bool after = false;        // does the operation, then fails: the caller does not know that it happened
};

// A failing operation throws IoError and does not reach the inner file system, with two exceptions. A short
// write first writes half of the bytes. A failing sync of a MemoryFileSystem's file loses what was not
// synced, as Linux does. Operations inside the hook are not logged, not counted, and never fail.
class FaultFileSystem final : public FileSystem {
 public:
  explicit FaultFileSystem(FileSystem& inner);
  ~FaultFileSystem() override;

  std::unique_ptr<Directory> open_directory(const std::filesystem::path& path, bool create) override;
  std::unique_ptr<File> open_file(const std::filesystem::path& path, OpenMode mode) override;
  bool is_mount_point(const std::filesystem::path& path) const override;
  bool on_root_file_system(const std::filesystem::path& path) const override;

  // The `nth` operation from now (from 1) fails. Several faults may be planned.
  void fail_mutation(int nth, int code, FaultOptions options = {});
  void fail(Op kind, int nth, int code, FaultOptions options = {});
  void fail_any(int nth, int code, FaultOptions options = {});  // mutating or not
  void clear_faults();
  int faults_fired() const;

  // Called before each operation and its faults. If it throws, the operation does not happen.
  void set_hook(std::function<void(const Operation&)> hook);

  std::vector<Operation> log() const;
  // The mutating operations as text, to compare whole histories.
  std::vector<std::string> mutations() const;
  int count(Op kind) const;
  int mutation_count() const;
  void clear_log();

  struct State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace holdfast::test
