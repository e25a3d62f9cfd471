#include "holdfast/kernels/kernel_cache.h"

#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <system_error>
#include <thread>
#include <utility>

#include "holdfast/base/env.h"
#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/io/file_system.h"

namespace holdfast { inline namespace v0_2 { namespace kernels {
namespace {

// The first bytes of a file; a file of another layout gets another number, and then counts as missing.
constexpr std::string_view kMagic = "holdfast kernel 1\n";
// Hexadecimal digits of a 128-bit digest.
constexpr std::size_t kDigest = 32;
// A kernel has some hundred KB; a file that is larger is none.
constexpr std::uint64_t kLongest = std::uint64_t{64} << 20;

std::string hex_of(std::uint64_t number) {
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(number));
  return text.data();
}

std::string digest_of(std::string_view text) {
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return hex_of(hash.high64) + hex_of(hash.low64);
}

void append(std::string& file, std::string_view text) {
  file += hex_of(text.size());
  file += text;
}

// A piece of a file. nullopt: the file is too short for it.
std::optional<std::string> next_piece(std::string_view& rest) {
  constexpr std::size_t kLength = 16;
  if (rest.size() < kLength) return std::nullopt;
  std::uint64_t length = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + kLength, length, 16);
  if (error != std::errc() || end != rest.data() + kLength) return std::nullopt;
  rest.remove_prefix(kLength);
  // The length comes from a file that may be damaged.
  if (length > rest.size()) return std::nullopt;
  std::string piece(rest.substr(0, length));
  rest.remove_prefix(length);
  return piece;
}

// Magic, digest of all that follows, key's digest, image, symbols.
std::string to_file(const std::string& key, const Compiled& compiled) {
  std::string body = digest_of(key);
  append(body, compiled.image);
  for (const std::string& symbol : compiled.symbols) append(body, symbol);
  return std::string(kMagic) + digest_of(body) + body;
}

std::optional<Compiled> from_file(std::string_view file, const std::string& key) {
  const std::size_t head = kMagic.size() + kDigest;
  if (file.size() < head + kDigest || file.substr(0, kMagic.size()) != kMagic) return std::nullopt;
  std::string_view body = file.substr(head);
  // A damaged file counts as missing, and is then written anew.
  if (file.substr(kMagic.size(), kDigest) != digest_of(body)) return std::nullopt;
  // Two keys could have the same name only if their digests collide; then the key decides.
  if (body.substr(0, kDigest) != digest_of(key)) return std::nullopt;
  body.remove_prefix(kDigest);
  Compiled compiled;
  std::optional<std::string> piece = next_piece(body);
  if (!piece) return std::nullopt;
  compiled.image = std::move(*piece);
  while (!body.empty()) {
    piece = next_piece(body);
    if (!piece) return std::nullopt;
    compiled.symbols.push_back(std::move(*piece));
  }
  return compiled;
}

std::filesystem::path absolute(const EnvVariable& variable) {
  std::filesystem::path path = env_text(variable).value_or("");
  // A relative path would depend on the working directory, and the XDG standard ignores those.
  return path.is_absolute() ? path : std::filesystem::path();
}

}  // namespace

std::filesystem::path KernelCache::folder_of_run() { return absolute(kEnvKernelCache); }

std::filesystem::path KernelCache::usual_folder() {
  std::filesystem::path caches = absolute(kEnvCacheHome);
  if (caches.empty()) {
    caches = absolute(kEnvHome);
    if (caches.empty()) return {};
    caches /= ".cache";
  }
  return caches / "holdfast" / "kernels";
}

KernelCache::KernelCache(FileSystem& file_system, std::filesystem::path folder)
    : file_system_(file_system), folder_(std::move(folder)) {}

KernelCache::KernelCache(FileSystem& file_system, std::filesystem::path folder, KernelCache& beyond)
    : file_system_(file_system),
      folder_(std::move(folder)),
      beyond_(&beyond),
      writes_(!env_flag(kEnvStandby).value_or(false)) {}

std::optional<Compiled> KernelCache::find(const std::string& key) noexcept {
  std::optional<Compiled> found = read(key);
  if (found || beyond_ == nullptr) return found;
  found = beyond_->find(key);
  if (found) keep_here(key, *found);
  return found;
}

void KernelCache::keep(const std::string& key, const Compiled& compiled) noexcept {
  keep_here(key, compiled);
  if (beyond_ != nullptr) beyond_->keep(key, compiled);
}

void KernelCache::keep_late() noexcept {
  try {
    std::map<std::string, Compiled> late;
    {
      const MutexLock lock(mutex_);
      if (late_.empty() || !can_begin()) return;
      late.swap(late_);
    }
    for (const auto& [key, compiled] : late) write(key, compiled);
  } catch (const std::exception& error) {
    say_unusable(error);
  }
}

void KernelCache::keep_here(const std::string& key, const Compiled& compiled) noexcept {
  if (folder_.empty() || !writes_) return;
  try {
    if (can_begin()) {
      write(key, compiled);
    } else {
      const MutexLock lock(mutex_);
      late_.emplace(key, compiled);
    }
  } catch (const std::exception& error) {
    say_unusable(error);
  }
}

bool KernelCache::can_begin() const {
  return beyond_ == nullptr ||
         file_system_.open_directory(folder_.parent_path(), /*create=*/false) != nullptr;
}

// Its bytes become code of this program, also before resume() has judged the run directory. The folder counts
// as well: who may write there can exchange a name.
bool KernelCache::is_ours(const Directory& folder, const std::string& name) const {
  if (beyond_ == nullptr) return true;
  const auto nobody_else_writes = [](const FileStatus& status) {
    constexpr std::uint32_t kOthersWrite = 022;
    return (status.owner == ::geteuid() || status.owner == 0) && (status.mode & kOthersWrite) == 0;
  };
  const auto file = folder.status(name);
  return file && nobody_else_writes(*file) && nobody_else_writes(folder.own_status());
}

std::optional<Compiled> KernelCache::read(const std::string& key) noexcept {
  if (folder_.empty()) return std::nullopt;
  try {
    const auto folder = file_system_.open_directory(folder_, /*create=*/false);
    const std::string name = digest_of(key);
    const auto file = folder && is_ours(*folder, name) ? folder->open(name, OpenMode::read) : nullptr;
    // Checked before the memory is allocated.
    if (!file || file->size() > kLongest) return std::nullopt;
    std::string bytes(file->size(), '\0');
    bytes.resize(file->read_at(std::as_writable_bytes(std::span(bytes)), 0));
    return from_file(bytes, key);
  } catch (const std::exception& error) {
    say_unusable(error);
    return std::nullopt;
  }
}

void KernelCache::write(const std::string& key, const Compiled& compiled) noexcept {
  try {
    static std::atomic<std::uint64_t> number = 0;  // two threads may keep the same kernel
    const std::string name = digest_of(key);
    const std::string temporary =
        name + "." + std::to_string(::getpid()) + "." + std::to_string(number++) + ".tmp";
    const auto folder = file_system_.open_directory(folder_, /*create=*/true);
    const auto file = folder->open(temporary, OpenMode::create);
    if (!file) return;  // left behind by a killed process with this one's number
    try {
      const std::string bytes = to_file(key, compiled);
      file->write_at(std::as_bytes(std::span(bytes)), 0);
      file->close();
      // No fsync: after a crash the digest tells a torn file, and compiling again costs seconds.
      folder->rename_over(temporary, name);
    } catch (...) {
      folder->unlink(temporary);
      throw;
    }
  } catch (const std::exception& error) {
    say_unusable(error);
  }
}

void KernelCache::say_unusable(const std::exception& error) noexcept {
  // Once: each kernel would say the same.
  if (said_.exchange(true)) return;
  log_info("compiled GPU kernels are not kept in {}: {}; {}", folder_.string(), what_of(error),
           beyond_ != nullptr ? "the next machine of this run compiles them again"
                              : "set XDG_CACHE_HOME to a folder that can be written");
}

std::string cache_key(const Source& source, const std::string& type, int architecture,
                      const std::string& compiler) {
  std::string key;
  const auto add = [&](std::string_view text) { append(key, text); };
  // Everything that changes the code is in the key, so a stale file is never found.
  add(compiler);
  add(std::to_string(architecture));
  add(source.path);
  add(type);
  for (const Text& text : source.texts()) {
    add(text.path);
    add(text.text);
  }
  if (source.texts == &texts_of_kernels) return key;
  for (const Text& text : texts_of_kernels()) {
    add(text.path);
    add(text.text);
  }
  return key;
}

std::vector<Outcome> compile_together(std::span<const std::string> types, KernelCache& cache,
                                      const std::function<std::string(const std::string& type)>& key,
                                      const std::function<Compiled(const std::string& type)>& compile) {
  std::vector<Outcome> outcomes(types.size());
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i; (i = next++) < types.size();) {
      try {
        const std::string full = key(types[i]);
        if (auto found = cache.find(full)) {
          outcomes[i].compiled = std::move(*found);
          continue;
        }
        outcomes[i].compiled = compile(types[i]);
        cache.keep(full, outcomes[i].compiled);
      } catch (...) {
        // Reported by the thread that asked, when the kernel is needed.
        outcomes[i].error = std::current_exception();
      }
    }
  };
  std::vector<std::jthread> helpers;
  try {
    for (std::size_t i = 1; i < std::min<std::size_t>(types.size(), std::thread::hardware_concurrency());
         ++i) {
      helpers.emplace_back(work);
    }
  } catch (const std::system_error&) {
    // Without more threads it takes longer.
  }
  work();
  helpers.clear();
  return outcomes;
}

}}}  // namespace holdfast::v0_2::kernels
