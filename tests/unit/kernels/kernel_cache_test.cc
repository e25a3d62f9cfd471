// Compiled kernels on the disk: who finds what, damage, folders that cannot be used, two processes. Needs
// neither a GPU nor NVRTC.
#include "holdfast/kernels/kernel_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>

#include "holdfast/base/error.h"
#include "holdfast/io/file_system.h"
#include "support/captured_log.h"
#include "support/fault_file_system.h"
#include "support/subprocess.h"

namespace holdfast { namespace {

namespace fs = std::filesystem;
using kernels::cache_key;
using kernels::Compiled;
using kernels::KernelCache;
using kernels::Outcome;
using kernels::Source;
using kernels::Text;
using testing::HasSubstr;

std::span<const Text> some_texts() {
  static constexpr std::array kTexts{Text{"a.h", "struct A;"}, Text{"b.h", "struct B;"}};
  return kTexts;
}
std::span<const Text> changed_texts() {
  static constexpr std::array kTexts{Text{"a.h", "struct A;"}, Text{"b.h", "struct B ;"}};
  return kTexts;
}
constexpr Source kSource{"a.h", &some_texts};

const Compiled kCompiled{.image = std::string("\0cubin\xff", 7), .symbols = {"_Z1a", ""}, .log = "noise"};

class KernelCacheTest : public testing::Test {
 protected:
  KernelCache cache() { return KernelCache(FileSystem::real(), path()); }
  fs::path path() const { return folder_.path() / "caches" / "holdfast" / "kernels"; }
  std::vector<fs::path> files() const {
    if (!fs::exists(path())) return {};
    return {fs::directory_iterator(path()), {}};
  }
  // What compile_together() gave, and how many of them were compiled for it.
  std::vector<Outcome> together(const std::vector<std::string>& types) {
    KernelCache used(FileSystem::real(), path());
    compiled_ = 0;
    return compile_together(
        types, used, [](const std::string& type) { return cache_key(kSource, type, 90, "NVRTC 13.0"); },
        [this](const std::string& type) {
          ++compiled_;
          if (type == "Broken") throw Error("kernel Broken does not compile");
          return Compiled{.image = "code of " + type, .symbols = {"_Z" + type}, .log = ""};
        });
  }

  test::TemporaryFolder folder_;
  std::atomic<int> compiled_ = 0;
};

TEST_F(KernelCacheTest, WhatWasKeptIsFoundByItsKeyAlone) {
  EXPECT_FALSE(cache().find("key"));
  cache().keep("key", kCompiled);
  const auto found = cache().find("key");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->image, kCompiled.image);
  EXPECT_EQ(found->symbols, kCompiled.symbols);
  EXPECT_FALSE(cache().find("other"));
  ASSERT_EQ(files().size(), 1U) << "no temporary file stays";
}

TEST_F(KernelCacheTest, AllThatDecidesTheCodeIsInTheKey) {
  const std::set<std::string> keys{
      cache_key(kSource, "A<float>", 90, "NVRTC 13.0"),
      cache_key(kSource, "A<Half>", 90, "NVRTC 13.0"),
      cache_key(kSource, "A<float>", 80, "NVRTC 13.0"),
      cache_key(kSource, "A<float>", 90, "NVRTC 13.1"),
      cache_key({"b.h", &some_texts}, "A<float>", 90, "NVRTC 13.0"),
      cache_key({"a.h", &changed_texts}, "A<float>", 90, "NVRTC 13.0"),
  };
  EXPECT_EQ(keys.size(), 6U);
  EXPECT_THAT(cache_key(kSource, "A", 90, "x"), HasSubstr("holdfast/kernels/device_code.h"))
      << "the text that every kernel includes";
}

TEST_F(KernelCacheTest, EveryDamagedByteAndEveryCutCountAsMissing) {
  cache().keep("key", kCompiled);
  const fs::path file = files().front();
  std::string bytes;
  {
    std::ifstream in(file, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(in), {});
  }
  const auto put = [&](const std::string& what) {
    std::ofstream(file, std::ios::binary | std::ios::trunc) << what;
  };
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(damaged[i] ^ 4);
    put(damaged);
    EXPECT_FALSE(cache().find("key")) << i;
    put(bytes.substr(0, i));
    EXPECT_FALSE(cache().find("key")) << i;
  }
  put(bytes + "x");
  EXPECT_FALSE(cache().find("key"));
  put(bytes);
  EXPECT_TRUE(cache().find("key"));
  // Another key's file under this name, as a careless copy leaves it.
  cache().keep("other", kCompiled);
  fs::copy_file(file, files().front() == file ? files().back() : files().front(),
                fs::copy_options::overwrite_existing);
  EXPECT_FALSE(cache().find("other"));
}

TEST_F(KernelCacheTest, DamagedKernelsAreCompiledAgainAndTheOthersAreNot) {
  EXPECT_EQ(together({"A", "B", "C"}).size(), 3U);
  EXPECT_EQ(compiled_, 3);
  EXPECT_EQ(together({"A", "B", "C"})[1].compiled.image, "code of B");
  EXPECT_EQ(compiled_, 0);
  fs::resize_file(files().front(), 40);
  for (const Outcome& outcome : together({"A", "B", "C"})) EXPECT_FALSE(outcome.error);
  EXPECT_EQ(compiled_, 1);
  together({"A", "B", "C"});
  EXPECT_EQ(compiled_, 0);
}

TEST_F(KernelCacheTest, OneKernelThatDoesNotCompileFailsAlone) {
  for (int i = 0; i < 2; ++i) {
    const auto outcomes = together({"A", "Broken", "C"});
    EXPECT_EQ(outcomes[0].compiled.symbols, std::vector<std::string>{"_ZA"});
    EXPECT_EQ(outcomes[2].compiled.symbols, std::vector<std::string>{"_ZC"});
    EXPECT_THROW(std::rethrow_exception(outcomes[1].error), Error);
  }
  EXPECT_EQ(compiled_, 1) << "the other two came from the disk";
}

TEST_F(KernelCacheTest, AFolderThatCannotBeUsedIsSaidOnceAndCostsNothingElse) {
  // Root may write anywhere, so something else stands in the way.
  std::ofstream(folder_.path() / "caches") << "a file, not a folder";
  test::CapturedLog log;
  KernelCache used(FileSystem::real(), path());
  EXPECT_FALSE(used.find("key"));
  used.keep("key", kCompiled);
  used.keep("other", kCompiled);
  const std::string text = log.text();
  const std::size_t first = text.find("compiled GPU kernels are not kept in");
  ASSERT_NE(first, std::string::npos) << text;
  EXPECT_EQ(text.find("compiled GPU kernels are not kept in", first + 1), std::string::npos) << text;
  EXPECT_THAT(text, HasSubstr("XDG_CACHE_HOME"));
  EXPECT_EQ(together({"A"})[0].compiled.image, "code of A");
}

TEST_F(KernelCacheTest, AFolderThatCannotBeWrittenStillServes) {
  cache().keep("key", kCompiled);
  for (const test::Op refused : {test::Op::create, test::Op::write, test::Op::rename_over}) {
    test::FaultFileSystem faults(FileSystem::real());
    faults.fail(refused, 1, EROFS, {.for_ever = true});
    test::CapturedLog log;
    KernelCache used(faults, path());
    EXPECT_TRUE(used.find("key"));
    used.keep("other", kCompiled);
    EXPECT_FALSE(used.find("other"));
    EXPECT_THAT(log.text(), HasSubstr("EROFS"));
    EXPECT_EQ(files().size(), 1U) << "no temporary file stays";
  }
}

TEST_F(KernelCacheTest, ProcessesThatKeepTheSameKernelsAtOnceLeaveWholeFiles) {
  const std::string large(1 << 16, 'x');
  std::vector<pid_t> children;
  for (int process = 0; process < 4; ++process) {
    const pid_t child = ::fork();
    if (child == 0) {
      KernelCache used(FileSystem::real(), path());
      bool torn = false;
      for (int i = 0; i < 25; ++i) {
        used.keep("key", {.image = large, .symbols = {"s"}, .log = ""});
        const auto found = used.find("key");
        torn = torn || !found || found->image.size() != large.size();
      }
      ::_exit(torn ? 1 : 0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(files().size(), 1U);
}

// Two machines with one run directory; each has caches of its own.
class KernelsOfARun : public KernelCacheTest {
 protected:
  struct MachineCaches {
    MachineCaches(const fs::path& users, const fs::path& run)
        : of_user(FileSystem::real(), users), cache(FileSystem::real(), run / "kernels", of_user) {}
    KernelCache of_user;
    KernelCache cache;
  };
  std::unique_ptr<MachineCaches> machine(const std::string& name) const {
    return std::make_unique<MachineCaches>(folder_.path() / name, run());
  }
  fs::path run() const { return folder_.path() / "run"; }
  std::vector<fs::path> kept_beside() const {
    if (!fs::exists(run() / "kernels")) return {};
    return {fs::directory_iterator(run() / "kernels"), {}};
  }
};

TEST_F(KernelsOfARun, TheNextMachineFindsWhatOneHasCompiled) {
  fs::create_directory(run());
  machine("a")->cache.keep("key", kCompiled);
  const auto found = machine("b")->cache.find("key");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->image, kCompiled.image);
  EXPECT_TRUE(machine("a")->of_user.find("key")) << "for other runs of the first machine";
}

TEST_F(KernelsOfARun, WhatThisMachineHasCompiledForOthersComesAlong) {
  fs::create_directory(run());
  machine("a")->of_user.keep("key", kCompiled);
  EXPECT_TRUE(machine("a")->cache.find("key"));
  EXPECT_TRUE(machine("b")->cache.find("key"));
}

TEST_F(KernelsOfARun, ATornEntryIsReplaced) {
  fs::create_directory(run());
  const auto first = machine("a");
  first->cache.keep("key", kCompiled);
  ASSERT_EQ(kept_beside().size(), 1U);
  fs::resize_file(kept_beside().front(), 40);
  EXPECT_FALSE(machine("b")->cache.find("key"));
  EXPECT_TRUE(first->cache.find("key"));
  EXPECT_TRUE(machine("b")->cache.find("key"));
}

TEST_F(KernelsOfARun, AnEntryThatAnotherUserMayWriteIsIgnored) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  fs::create_directory(run());
  machine("a")->cache.keep("key", kCompiled);
  constexpr uid_t kSomebody = 4711;
  ASSERT_EQ(::chown(kept_beside().front().c_str(), kSomebody, 0), 0);
  EXPECT_FALSE(machine("b")->cache.find("key"));
  ASSERT_EQ(::chown(kept_beside().front().c_str(), 0, 0), 0);
  EXPECT_TRUE(machine("c")->cache.find("key"));
  const auto owner_writes = fs::perms::owner_all | fs::perms::group_read;
  fs::permissions(kept_beside().front(), owner_writes | fs::perms::group_write);
  EXPECT_FALSE(machine("d")->cache.find("key"));
  fs::permissions(kept_beside().front(), owner_writes);
  fs::permissions(run() / "kernels", fs::perms::all);
  EXPECT_FALSE(machine("e")->cache.find("key")) << "somebody may exchange the name";
  fs::permissions(run() / "kernels", fs::perms::owner_all);
  EXPECT_TRUE(machine("f")->cache.find("key"));
}

TEST_F(KernelsOfARun, ARunDirectoryIsNeverMade) {
  test::CapturedLog log;
  const auto first = machine("a");
  first->of_user.keep("of another run", kCompiled);
  first->cache.keep("key", kCompiled);
  EXPECT_TRUE(first->cache.find("of another run"));
  first->cache.keep_late();
  EXPECT_FALSE(fs::exists(run()));
  EXPECT_EQ(log.text(), "");
  EXPECT_TRUE(machine("a")->cache.find("key"));
  // As resume() does.
  fs::create_directory(run());
  first->cache.keep_late();
  EXPECT_TRUE(machine("b")->cache.find("key"));
  EXPECT_TRUE(machine("c")->cache.find("of another run"));
}

TEST_F(KernelsOfARun, AStandbyWritesNothingThere) {
  fs::create_directory(run());
  ::setenv("HOLDFAST_STANDBY", "1", 1);
  const auto standby = machine("b");
  ::unsetenv("HOLDFAST_STANDBY");
  standby->cache.keep("key", kCompiled);
  EXPECT_TRUE(fs::is_empty(run()));
  machine("a")->cache.keep("other", kCompiled);
  EXPECT_TRUE(standby->cache.find("other")) << "it reads";
}

TEST_F(KernelsOfARun, AFolderThatCannotBeUsedIsSaidOnceAndTheUsersServes) {
  fs::create_directory(run());
  std::ofstream(run() / "kernels") << "a file, not a folder";
  test::CapturedLog log;
  const auto first = machine("a");
  first->cache.keep("key", kCompiled);
  EXPECT_TRUE(first->cache.find("key"));
  EXPECT_THAT(log.text(), HasSubstr("the next machine of this run compiles them again"));
}

TEST(KernelCacheFolder, ComesFromTheEnvironment) {
  const auto folder_with = [](const char* caches, const char* home) {
    const auto put = [](const char* name, const char* value) {
      value == nullptr ? ::unsetenv(name) : ::setenv(name, value, 1);
    };
    const char* const was_home = ::getenv("HOME");
    const std::string kept = was_home == nullptr ? "" : was_home;
    put("XDG_CACHE_HOME", caches);
    put("HOME", home);
    const std::string folder = KernelCache::usual_folder().string();
    put("XDG_CACHE_HOME", nullptr);
    put("HOME", was_home == nullptr ? nullptr : kept.c_str());
    return folder;
  };
  EXPECT_EQ(folder_with("/c", "/home/a"), "/c/holdfast/kernels");
  EXPECT_EQ(folder_with(nullptr, "/home/a"), "/home/a/.cache/holdfast/kernels");
  EXPECT_EQ(folder_with("relative", "/home/a"), "/home/a/.cache/holdfast/kernels");
  EXPECT_EQ(folder_with(nullptr, nullptr), "");
  EXPECT_EQ(folder_with(nullptr, ""), "");
  ::setenv("HOLDFAST_KERNEL_CACHE", "/run/kernels", 1);
  EXPECT_EQ(KernelCache::folder_of_run(), "/run/kernels");
  ::setenv("HOLDFAST_KERNEL_CACHE", "relative", 1);
  EXPECT_EQ(KernelCache::folder_of_run(), "");
  ::unsetenv("HOLDFAST_KERNEL_CACHE");
  // Without a folder nothing is kept, and nothing is said.
  test::CapturedLog log;
  KernelCache nowhere(FileSystem::real(), {});
  nowhere.keep("key", kCompiled);
  EXPECT_FALSE(nowhere.find("key"));
  EXPECT_EQ(log.text(), "");
}

}}  // namespace holdfast
