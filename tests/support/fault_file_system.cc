#include "support/fault_file_system.h"

#include <array>
#include <mutex>
#include <optional>
#include <utility>

#include "holdfast/base/error.h"
#include "support/memory_file_system.h"

namespace holdfast::test {
namespace {

struct Fault {
  std::optional<Op> kind = {};  // nullopt: any
  bool looks_too = false;       // without a kind: not only mutating ones
  int left = 1;
  int code = 0;
  FaultOptions options = {};

  bool fires_at(const Operation& operation) {
    if (kind ? operation.kind != *kind : !operation.mutating && !looks_too) return false;
    if (left > 0) --left;
    return left == 0;
  }
};

// Set while a hook runs on this thread.
thread_local bool in_hook = false;

}  // namespace

struct FaultFileSystem::State {
  FileSystem* inner = nullptr;
  mutable std::mutex mutex;
  std::vector<Fault> faults;
  std::function<void(const Operation&)> hook;
  std::vector<Operation> log;
  int fired = 0;

  std::optional<Fault> enter(Operation& operation) {
    std::function<void(const Operation&)> call;
    {
      const std::lock_guard lock(mutex);
      call = hook;
    }
    if (call) {
      in_hook = true;
      try {
        call(operation);
      } catch (...) {
        in_hook = false;
        throw;
      }
      in_hook = false;
    }
    const std::lock_guard lock(mutex);
    std::optional<Fault> firing;
    for (auto fault = faults.begin(); fault != faults.end();) {
      const bool fires = fault->fires_at(operation);
      if (fires && !firing) firing = *fault;
      fault = fires && !fault->options.for_ever ? faults.erase(fault) : fault + 1;
    }
    operation.failed = firing.has_value();
    fired += firing ? 1 : 0;
    log.push_back(operation);
    return firing;
  }

  // Runs `act` for an operation, or fails in its place. `on_fault` does what happens even then.
  template <class Act, class OnFault>
  auto run(Operation operation, Act&& act, OnFault&& on_fault) {
    if (in_hook) return act();
    const auto fault = enter(operation);
    if (!fault) return act();
    if (fault->options.after) {
      act();
    } else {
      on_fault(fault->options);
    }
    throw IoError(std::string(name_of(operation.kind)), operation.path, fault->code, "planned fault");
  }
  template <class Act>
  auto run(Operation operation, Act&& act) {
    return run(std::move(operation), std::forward<Act>(act), [](const FaultOptions&) {});
  }
};

namespace {

using StatePtr = std::shared_ptr<FaultFileSystem::State>;

std::string child(const std::string& directory, std::string_view name) {
  return (std::filesystem::path(directory) / name).native();
}

Op op_of(OpenMode mode) {
  if (mode == OpenMode::read) return Op::open_read;
  if (mode == OpenMode::overwrite_direct) return Op::open_overwrite;
  return mode == OpenMode::append ? Op::open_append : Op::create;
}

// Opening an existing file changes nothing.
bool makes(OpenMode mode) { return mode != OpenMode::read && mode != OpenMode::overwrite_direct; }

class FaultFile final : public File {
 public:
  FaultFile(StatePtr state, std::unique_ptr<File> inner, std::string path)
      : state_(std::move(state)), inner_(std::move(inner)), path_(std::move(path)) {}

  std::uint64_t size() const override {
    return state_->run({.kind = Op::status, .path = path_}, [&] { return inner_->size(); });
  }
  std::size_t read_at(std::span<std::byte> buffer, std::uint64_t offset) const override {
    return state_->run({.kind = Op::read, .path = path_, .offset = offset, .length = buffer.size()},
                       [&] { return inner_->read_at(buffer, offset); });
  }
  std::size_t read_uncached_at(std::span<std::byte> buffer, std::uint64_t offset) const override {
    return state_->run({.kind = Op::read, .path = path_, .offset = offset, .length = buffer.size()},
                       [&] { return inner_->read_uncached_at(buffer, offset); });
  }
  void write_at(std::span<const std::byte> data, std::uint64_t offset) override {
    state_->run(
        {.kind = Op::write, .path = path_, .offset = offset, .length = data.size(), .mutating = true},
        [&] { inner_->write_at(data, offset); },
        [&](const FaultOptions& options) {
          // Whole blocks, so that a direct file accepts the write.
          const std::size_t half = data.size() >= 8192 ? data.size() / 8192 * 4096 : data.size() / 2;
          if (options.short_write && (data.size() < 4096 || data.size() >= 8192)) {
            inner_->write_at(data.first(half), offset);
          }
        });
  }
  void reserve(std::uint64_t length) override {
    state_->run({.kind = Op::reserve, .path = path_, .offset = length, .mutating = true},
                [&] { inner_->reserve(length); });
  }
  void truncate(std::uint64_t length) override {
    state_->run({.kind = Op::truncate, .path = path_, .offset = length, .mutating = true},
                [&] { inner_->truncate(length); });
  }
  void sync() override {
    state_->run(
        {.kind = Op::sync_file, .path = path_, .mutating = true}, [&] { inner_->sync(); },
        [&](const FaultOptions&) {
          if (auto* memory = dynamic_cast<LosesUnsynced*>(inner_.get())) memory->lose_unsynced();
        });
  }
  void close() override {
    // The descriptor is closed, whatever close() returned.
    state_->run(
        {.kind = Op::close, .path = path_, .mutating = true}, [&] { inner_->close(); },
        [&](const FaultOptions&) { inner_->close(); });
  }

 private:
  StatePtr state_;
  std::unique_ptr<File> inner_;
  std::string path_;
};

class FaultDirectory final : public Directory {
 public:
  FaultDirectory(StatePtr state, std::unique_ptr<Directory> inner)
      : state_(std::move(state)), inner_(std::move(inner)) {}

  const std::string& path() const override { return inner_->path(); }

  std::unique_ptr<File> open(std::string_view name, OpenMode mode) override {
    const std::string full = child(path(), name);
    auto file = state_->run({.kind = op_of(mode), .path = full, .mutating = makes(mode)},
                            [&] { return inner_->open(name, mode); });
    if (file == nullptr) return nullptr;
    return std::make_unique<FaultFile>(state_, std::move(file), full);
  }
  std::unique_ptr<Directory> open_directory(std::string_view name, bool create) override {
    auto opened = state_->run({.kind = Op::open_directory, .path = child(path(), name), .mutating = create},
                              [&] { return inner_->open_directory(name, create); });
    if (opened == nullptr) return nullptr;
    return std::make_unique<FaultDirectory>(state_, std::move(opened));
  }
  FileStatus own_status() const override { return inner_->own_status(); }
  std::optional<FileStatus> status(std::string_view name) const override {
    return state_->run({.kind = Op::status, .path = child(path(), name)},
                       [&] { return inner_->status(name); });
  }
  std::vector<DirectoryEntry> list() const override {
    return state_->run({.kind = Op::list, .path = path()}, [&] { return inner_->list(); });
  }
  bool rename_new(std::string_view from, std::string_view to) override {
    return state_->run(
        {.kind = Op::rename_new, .path = child(path(), from), .to = std::string(to), .mutating = true},
        [&] { return inner_->rename_new(from, to); });
  }
  void rename_over(std::string_view from, std::string_view to) override {
    state_->run(
        {.kind = Op::rename_over, .path = child(path(), from), .to = std::string(to), .mutating = true},
        [&] { inner_->rename_over(from, to); });
  }
  bool unlink(std::string_view name) override {
    return state_->run({.kind = Op::unlink, .path = child(path(), name), .mutating = true},
                       [&] { return inner_->unlink(name); });
  }
  bool unlink_lazily(std::string_view name, std::unique_ptr<HeldBlocks>& blocks) override {
    return state_->run({.kind = Op::unlink, .path = child(path(), name), .mutating = true},
                       [&] { return inner_->unlink_lazily(name, blocks); });
  }
  void sync() override {
    state_->run(
        {.kind = Op::sync_directory, .path = path(), .mutating = true}, [&] { inner_->sync(); },
        [&](const FaultOptions& options) {
          auto* const memory = dynamic_cast<LosesUnsynced*>(inner_.get());
          if (options.loses_names && memory != nullptr) memory->lose_unsynced();
        });
  }

 private:
  StatePtr state_;
  std::unique_ptr<Directory> inner_;
};

}  // namespace

std::string_view name_of(Op op) {
  static constexpr std::array<std::string_view, 17> kNames{
      "open_directory", "open_read",  "open_overwrite", "create",  "open_append",    "status",
      "list",           "read",       "write",          "reserve", "truncate",       "fsync",
      "close",          "rename_new", "rename_over",    "unlink",  "fsync_directory"};
  return kNames[static_cast<std::size_t>(op)];
}

std::string Operation::text() const {
  std::string line = std::string(name_of(kind)) + ' ' + path;
  if (!to.empty()) line += " -> " + to;
  return line;
}

FaultFileSystem::FaultFileSystem(FileSystem& inner) : state_(std::make_shared<State>()) {
  state_->inner = &inner;
}
FaultFileSystem::~FaultFileSystem() = default;

std::unique_ptr<Directory> FaultFileSystem::open_directory(const std::filesystem::path& path, bool create) {
  auto opened = state_->run({.kind = Op::open_directory, .path = path.native(), .mutating = create},
                            [&] { return state_->inner->open_directory(path, create); });
  if (opened == nullptr) return nullptr;
  return std::make_unique<FaultDirectory>(state_, std::move(opened));
}

std::unique_ptr<File> FaultFileSystem::open_file(const std::filesystem::path& path, OpenMode mode) {
  auto file = state_->run({.kind = op_of(mode), .path = path.native(), .mutating = makes(mode)},
                          [&] { return state_->inner->open_file(path, mode); });
  return std::make_unique<FaultFile>(state_, std::move(file), path.native());
}

bool FaultFileSystem::is_mount_point(const std::filesystem::path& path) const {
  return state_->inner->is_mount_point(path);
}

bool FaultFileSystem::on_root_file_system(const std::filesystem::path& path) const {
  return state_->inner->on_root_file_system(path);
}

void FaultFileSystem::fail_mutation(int nth, int code, FaultOptions options) {
  const std::lock_guard lock(state_->mutex);
  state_->faults.push_back({.left = nth, .code = code, .options = options});
}

void FaultFileSystem::fail(Op kind, int nth, int code, FaultOptions options) {
  const std::lock_guard lock(state_->mutex);
  state_->faults.push_back({.kind = kind, .left = nth, .code = code, .options = options});
}

void FaultFileSystem::fail_any(int nth, int code, FaultOptions options) {
  const std::lock_guard lock(state_->mutex);
  state_->faults.push_back({.looks_too = true, .left = nth, .code = code, .options = options});
}

void FaultFileSystem::clear_faults() {
  const std::lock_guard lock(state_->mutex);
  state_->faults.clear();
}

int FaultFileSystem::faults_fired() const {
  const std::lock_guard lock(state_->mutex);
  return state_->fired;
}

void FaultFileSystem::set_hook(std::function<void(const Operation&)> hook) {
  const std::lock_guard lock(state_->mutex);
  state_->hook = std::move(hook);
}

std::vector<Operation> FaultFileSystem::log() const {
  const std::lock_guard lock(state_->mutex);
  return state_->log;
}

std::vector<std::string> FaultFileSystem::mutations() const {
  std::vector<std::string> lines;
  for (const Operation& operation : log()) {
    if (operation.mutating) lines.push_back(operation.text());
  }
  return lines;
}

int FaultFileSystem::count(Op kind) const {
  int found = 0;
  for (const Operation& operation : log()) found += operation.kind == kind ? 1 : 0;
  return found;
}

int FaultFileSystem::mutation_count() const {
  int found = 0;
  for (const Operation& operation : log()) found += operation.mutating ? 1 : 0;
  return found;
}

void FaultFileSystem::clear_log() {
  const std::lock_guard lock(state_->mutex);
  state_->log.clear();
}

}  // namespace holdfast::test
