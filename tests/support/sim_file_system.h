// A FileSystem whose power can be cut after every operation, with any subset of the operations that no fsync
// covered (sim_disk.h). As strict as the real one: create_direct wants aligned writes, names are single
// components, rename_new never replaces. open_directory with `create` fsyncs every parent.
//
//   SimFileSystem files;
//   files.set_hook([&](const std::string& operation) { judge(files.disk().after_power_cut(…)); });
//
// Threads: one at a time. Outlives its handles.
#pragma once

#include <functional>
#include <string>

#include "holdfast/io/file_system.h"
#include "support/sim_disk.h"

namespace holdfast::test {

class SimFileSystem final : public FileSystem {
 public:
  // The only directory of the disk: the mounted volume.
  static constexpr char kVolume[] = "/volume";

  SimFileSystem();
  explicit SimFileSystem(SimDisk disk) : disk_(std::move(disk)) {}

  std::unique_ptr<Directory> open_directory(const std::filesystem::path& path, bool create) override;
  std::unique_ptr<File> open_file(const std::filesystem::path& path, OpenMode mode) override;
  bool is_mount_point(const std::filesystem::path& path) const override { return path == kVolume; }
  bool on_root_file_system(const std::filesystem::path& path) const override;

  SimDisk& disk() { return disk_; }
  const SimDisk& disk() const { return disk_; }
  std::optional<SimDisk::Node> find(const std::filesystem::path& path) const;

  // Called after every operation that changed the disk or made something durable. Builds the text ("fsync
  // /volume/run/x") only on demand.
  using Text = std::function<std::string()>;
  void set_hook(std::function<void(const Text&)> hook) { hook_ = std::move(hook); }
  void changed(const char* operation, const std::string& path, std::string_view name = {},
               std::string_view to = {}) const;

 private:
  SimDisk disk_;
  std::function<void(const Text&)> hook_;
};

// Hash of a file's present content, whatever its name. Only for files of a SimFileSystem.
std::uint64_t content_hash(const File& file);

}  // namespace holdfast::test
