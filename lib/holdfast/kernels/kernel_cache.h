// Keeps compiled kernels on the disk, so that only the first process of a machine compiles them.
//
//   KernelCache cache(FileSystem::real(), KernelCache::usual_folder());
//   const std::vector<Outcome> kernels = compile_together(names, cache, key, compile);
//
// One file a kernel, named by the digest of its key. A file that is damaged or torn counts as missing, and
// its kernel is compiled again. Files appear whole: they are written under a temporary name and renamed. They
// are not flushed to the disk, because a power cut costs only a compilation. The folder may be deleted at any
// time; nothing in it belongs to a run.
//
// Errors: none; a folder that cannot be used is logged once, and kernels are compiled without it. Threads:
// any, and several processes.
#pragma once

#include <atomic>
#include <exception>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "holdfast/kernels/compiler.h"
#include "holdfast/kernels/source.h"

namespace holdfast { inline namespace v0_2 {

class FileSystem;

namespace kernels {

class KernelCache {
 public:
  // $XDG_CACHE_HOME/holdfast/kernels, else ~/.cache/holdfast/kernels. Empty if neither variable is an
  // absolute path; then nothing is kept.
  static std::filesystem::path usual_folder();

  KernelCache(FileSystem& file_system, std::filesystem::path folder);

  std::optional<Compiled> find(const std::string& key) noexcept;
  void keep(const std::string& key, const Compiled& compiled) noexcept;

 private:
  void say_unusable(const std::exception& error) noexcept;

  FileSystem& file_system_;
  std::filesystem::path folder_;
  std::atomic<bool> said_ = false;
};

// Everything that decides the machine code of a kernel: all texts, its name, the architecture, NVRTC's
// version and options.
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
