// Keeps compiled kernels on the disk, so that only the first process of a machine compiles them; beside a
// run, so that its next machine does not either.
//
//   KernelCache cache(FileSystem::real(), KernelCache::folder_of_run(), of_user);
//   const std::vector<Outcome> kernels = compile_together(names, cache, key, compile);
//
// One file a kernel, named by the digest of its key. A file that is damaged or torn counts as missing, and
// its kernel is compiled again. Files appear whole: they are written under a temporary name and renamed. They
// are not flushed to the disk, because a power cut costs only a compilation. The folder may be deleted.
//
// Errors: none; a folder that cannot be used is logged once, and kernels are compiled without it. Threads:
// any, and several processes.
#pragma once

#include <atomic>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "holdfast/base/mutex.h"
#include "holdfast/kernels/compiler.h"
#include "holdfast/kernels/source.h"

namespace holdfast { inline namespace v0_2 {

class Directory;
class FileSystem;

namespace kernels {

class KernelCache {
 public:
  // $XDG_CACHE_HOME/holdfast/kernels, else ~/.cache/holdfast/kernels. Empty if neither variable is an
  // absolute path; then nothing is kept.
  static std::filesystem::path usual_folder();
  // HOLDFAST_KERNEL_CACHE, in the run directory. Empty if it is no absolute path.
  static std::filesystem::path folder_of_run();

  KernelCache(FileSystem& file_system, std::filesystem::path folder);
  // Beside a run. What is not there is looked for in `beyond`, which outlives this object, and is then kept
  // in both. The run directory is never made, because its volume may not be mounted yet: what comes before is
  // kept by keep_late(). A file that another user than root owns or may write, or whose folder one does,
  // counts as missing: its code would run. A standby (HOLDFAST_STANDBY) writes nothing there.
  KernelCache(FileSystem& file_system, std::filesystem::path folder, KernelCache& beyond);

  std::optional<Compiled> find(const std::string& key) noexcept;
  void keep(const std::string& key, const Compiled& compiled) noexcept;
  // What came before the run directory was there. Quick if there is nothing to do.
  void keep_late() noexcept;

 private:
  std::optional<Compiled> read(const std::string& key) noexcept;
  void keep_here(const std::string& key, const Compiled& compiled) noexcept;
  void write(const std::string& key, const Compiled& compiled) noexcept;
  bool can_begin() const;
  bool is_ours(const Directory& folder, const std::string& name) const;
  void say_unusable(const std::exception& error) noexcept;

  FileSystem& file_system_;
  std::filesystem::path folder_;
  KernelCache* const beyond_ = nullptr;  // null: this folder belongs to no run
  const bool writes_ = true;
  std::atomic<bool> said_ = false;
  Mutex mutex_;
  std::map<std::string, Compiled> late_ HOLDFAST_GUARDED_BY(mutex_);
};

// Everything that decides the machine code of a kernel: all texts (which change with this library), its name,
// the device's architecture, NVRTC's version and options. The driver decides nothing: NVRTC does not know it.
std::string cache_key(const Source& source, const std::string& type, int architecture,
                      const std::string& compiler);

struct Outcome {
  Compiled compiled;
  std::exception_ptr error;  // not null: this kernel does not compile
};
// Takes each kernel from the cache, or compiles and keeps it. Compiles in a thread each, as far as the
// machine has cores. `key` and `compile` are called from several threads.
std::vector<Outcome> compile_together(std::span<const std::string> types, KernelCache& cache,
                                      const std::function<std::string(const std::string& type)>& key,
                                      const std::function<Compiled(const std::string& type)>& compile);

}  // namespace kernels
}}  // namespace holdfast::v0_2
