// What io/file_system.h promises, asked of every implementation: the machine's own with everything switched
// on, with every fallback, and the one in memory.
#include "holdfast/io/file_system.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>

#include "holdfast/base/error.h"
#include "holdfast/io/posix_file_system.h"
#include "support/fault_file_system.h"
#include "support/memory_file_system.h"

namespace holdfast { namespace {

using test::FaultFileSystem;
using test::MemoryFileSystem;

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

std::string text_of(const File& file, bool uncached = false) {
  std::string text(file.size(), '?');
  const auto buffer = std::as_writable_bytes(std::span(text));
  EXPECT_EQ(uncached ? file.read_uncached_at(buffer, 0) : file.read_at(buffer, 0), text.size());
  return text;
}

int code_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const IoError& error) {
    return error.code();
  }
  return 0;
}

std::string make_folder(const std::string& parent) {
  std::string name = parent + "/holdfast-io-XXXXXX";
  EXPECT_NE(mkdtemp(name.data()), nullptr);
  return name;
}

// A file system with an empty folder in it.
struct Place {
  std::unique_ptr<FileSystem> below;
  std::unique_ptr<FileSystem> file_system;
  std::filesystem::path folder;
  bool real = true;
  ~Place() {
    if (real) std::filesystem::remove_all(folder);
  }
};

std::unique_ptr<Place> real_place(PosixOptions options, const std::string& parent) {
  auto place = std::make_unique<Place>();
  place->file_system = std::make_unique<PosixFileSystem>(options);
  place->folder = make_folder(parent);
  return place;
}

std::unique_ptr<Place> memory_place(bool behind_faults) {
  auto place = std::make_unique<Place>();
  place->file_system = std::make_unique<MemoryFileSystem>();
  place->file_system->open_directory("/tmp/x", true);
  if (behind_faults) {
    place->below = std::move(place->file_system);
    place->file_system = std::make_unique<FaultFileSystem>(*place->below);
  }
  place->folder = "/tmp/x";
  place->real = false;
  return place;
}

struct Kind {
  const char* name;
  std::unique_ptr<Place> (*make)();
};

const Kind kKinds[] = {
    {"Posix", [] { return real_place({}, testing::TempDir()); }},
    {"PosixFallbacks",
     [] {
       return real_place({.openat2 = false, .rename_noreplace = false, .direct = false}, testing::TempDir());
     }},
    {"PosixTmpfs", [] { return real_place({}, "/dev/shm"); }},
    {"Memory", [] { return memory_place(false); }},
    {"MemoryBehindFaults", [] { return memory_place(true); }},
};

class AnyFileSystem : public testing::TestWithParam<Kind> {
 public:
  AnyFileSystem()
      : place(GetParam().make()), fs(*place->file_system), dir(fs.open_directory(place->folder, false)) {}

  void put(const std::string& name, std::string_view text) {
    const auto file = dir->open(name, OpenMode::create);
    ASSERT_NE(file, nullptr);
    file->write_at(bytes_of(text), 0);
    file->close();
  }
  std::string get(const std::string& name) { return text_of(*dir->open(name, OpenMode::read)); }
  std::vector<std::string> names() {
    std::vector<std::string> found;
    for (const auto& entry : dir->list()) found.push_back(entry.name);
    std::sort(found.begin(), found.end());
    return found;
  }

  std::unique_ptr<Place> place;
  FileSystem& fs;
  std::unique_ptr<Directory> dir;
};

TEST_P(AnyFileSystem, WritesAndReadsAtOffsets) {
  const auto file = dir->open("a", OpenMode::create);
  file->write_at(bytes_of("world"), 6);
  file->write_at(bytes_of("hello "), 0);
  EXPECT_EQ(file->size(), 11u);
  EXPECT_EQ(text_of(*file), "hello world");
  EXPECT_EQ(text_of(*file, true), "hello world");
  std::string part(4, '?');
  EXPECT_EQ(file->read_at(std::as_writable_bytes(std::span(part)), 9), 2u) << "fewer only at the end";
  EXPECT_EQ(part, "ld??");
  EXPECT_EQ(file->read_at(std::as_writable_bytes(std::span(part)), 100), 0u);
  EXPECT_EQ(file->read_uncached_at(std::as_writable_bytes(std::span(part)), 100), 0u);
  file->truncate(5);
  EXPECT_EQ(text_of(*file), "hello");
  file->sync();
  file->close();
}

TEST_P(AnyFileSystem, UncachedReadsOfAnyRangeEqualCachedOnes) {
  std::string content(3 * 1024 * 1024 + 77, '\0');
  for (std::size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 2654435761u >> 13);
  put("a", content);
  const auto file = dir->open("a", OpenMode::read);
  for (const auto& [offset, length] :
       std::vector<std::pair<std::size_t, std::size_t>>{{0, content.size()},
                                                        {1, 4096},
                                                        {4095, 2},
                                                        {4096, 4096},
                                                        {1048575, 1048578},
                                                        {3 * 1024 * 1024, 77},
                                                        {3 * 1024 * 1024, 4096},
                                                        {content.size() - 1, 1},
                                                        {5, 0}}) {
    std::string got(length, '?');
    const std::size_t count = file->read_uncached_at(std::as_writable_bytes(std::span(got)), offset);
    EXPECT_EQ(count, std::min(length, content.size() - offset)) << offset << "+" << length;
    EXPECT_EQ(got.substr(0, count), content.substr(offset, count)) << offset << "+" << length;
  }
}

TEST_P(AnyFileSystem, DirectFilesTakeAlignedBlocksAndAreCutToLength) {
  const auto file = dir->open("a", OpenMode::create_direct);
  file->reserve(12288);
  EXPECT_EQ(file->size(), 12288u);
  struct alignas(4096) Block {
    char text[8192];
  };
  const auto block = std::make_unique<Block>();
  std::memset(block->text, 'x', sizeof block->text);
  file->write_at(std::as_bytes(std::span(block->text)), 4096);
  std::memset(block->text, 'h', 4096);
  file->write_at(std::as_bytes(std::span(block->text).first(4096)), 0);
  file->truncate(10000);
  file->sync();
  std::string expected = std::string(4096, 'h') + std::string(10000 - 4096, 'x');
  EXPECT_EQ(text_of(*file, true), expected);
  EXPECT_EQ(text_of(*file), expected);
  file->close();
  EXPECT_EQ(get("a"), expected);
}

TEST_P(AnyFileSystem, CreateNeverReplaces) {
  put("a", "first");
  EXPECT_EQ(dir->open("a", OpenMode::create), nullptr);
  EXPECT_EQ(dir->open("a", OpenMode::create_direct), nullptr);
  EXPECT_EQ(get("a"), "first");
  EXPECT_EQ(dir->open("b", OpenMode::read), nullptr);
}

TEST_P(AnyFileSystem, AppendAddsAtTheEnd) {
  const auto one = dir->open("log", OpenMode::append);
  const auto two = dir->open("log", OpenMode::append);
  one->write_at(bytes_of("a"), 0);
  two->write_at(bytes_of("b"), 0);
  one->write_at(bytes_of("c"), 0);
  EXPECT_EQ(get("log"), "abc");
}

TEST_P(AnyFileSystem, RenameNewNeverReplaces) {
  put("a", "new");
  put("b", "old");
  EXPECT_FALSE(dir->rename_new("a", "b"));
  EXPECT_EQ(get("b"), "old");
  EXPECT_TRUE(dir->rename_new("a", "c"));
  EXPECT_EQ(get("c"), "new");
  EXPECT_EQ(names(), (std::vector<std::string>{"b", "c"}));
  EXPECT_EQ(code_of([&] { dir->rename_new("gone", "d"); }), ENOENT);
}

TEST_P(AnyFileSystem, RenameOverReplaces) {
  put("a", "new");
  put("b", "old");
  dir->rename_over("a", "b");
  EXPECT_EQ(get("b"), "new");
  EXPECT_EQ(code_of([&] { dir->rename_over("gone", "b"); }), ENOENT);
  EXPECT_EQ(names(), std::vector<std::string>{"b"});
}

TEST_P(AnyFileSystem, AnUnlinkedFileStaysReadableWhileOpen) {
  put("a", "text");
  const auto file = dir->open("a", OpenMode::read);
  EXPECT_TRUE(dir->unlink("a"));
  EXPECT_FALSE(dir->unlink("a"));
  EXPECT_EQ(text_of(*file), "text");
  EXPECT_EQ(dir->status("a"), std::nullopt);
}

TEST_P(AnyFileSystem, StatusAndKinds) {
  put("a", "text");
  dir->open_directory("d", true);
  const auto status = dir->status("a");
  ASSERT_TRUE(status);
  EXPECT_EQ(status->kind, FileKind::regular);
  EXPECT_EQ(status->size, 4u);
  EXPECT_EQ(status->mode, 0600u);
  EXPECT_EQ(dir->status("d")->kind, FileKind::directory);
  EXPECT_EQ(dir->status("d")->mode, 0700u);
  for (const auto& entry : dir->list()) {
    EXPECT_EQ(entry.kind, entry.name == "a" ? FileKind::regular : FileKind::directory);
  }
  EXPECT_EQ(code_of([&] { dir->open("d", OpenMode::read); }), EISDIR);
  EXPECT_NE(code_of([&] { dir->open_directory("a", false); }), 0);
}

TEST_P(AnyFileSystem, DirectoriesAreOpenedAndMade) {
  EXPECT_EQ(dir->open_directory("d", false), nullptr);
  const auto made = dir->open_directory("d", true);
  ASSERT_NE(made, nullptr);
  EXPECT_NE(dir->open_directory("d", true), nullptr) << "made before is fine";
  made->open("a", OpenMode::create)->close();
  made->sync();
  dir->sync();
  const auto deep = place->folder / "p/q/r";
  EXPECT_EQ(fs.open_directory(deep, false), nullptr);
  ASSERT_NE(fs.open_directory(deep, true), nullptr);
  EXPECT_NE(fs.open_directory(deep, false), nullptr);
  EXPECT_NE(code_of([&] { fs.open_directory(place->folder / "d/a", false); }), 0) << "a file is no directory";
}

TEST_P(AnyFileSystem, OnlySingleComponentsAreNames) {
  for (const std::string& name :
       {std::string(), std::string("."), std::string(".."), std::string("a/b"), std::string("/etc/passwd"),
        std::string("a\0b", 3), std::string(256, 'x')}) {
    EXPECT_THROW(dir->open(name, OpenMode::create), UsageError) << name;
    EXPECT_THROW(dir->open_directory(name, true), UsageError) << name;
    EXPECT_THROW(dir->unlink(name), UsageError) << name;
    EXPECT_THROW(dir->rename_new("a", name), UsageError) << name;
    EXPECT_THROW((void)dir->status(name), UsageError) << name;
  }
  EXPECT_TRUE(names().empty());
}

TEST_P(AnyFileSystem, LinksAreNotFollowed) {
  if (place->real) {
    std::ofstream(place->folder / "target") << "secret";
    std::filesystem::create_symlink("target", place->folder / "link");
  } else {
    auto* below = place->below ? place->below.get() : place->file_system.get();
    dynamic_cast<MemoryFileSystem&>(*below).link(place->folder / "link");
  }
  EXPECT_EQ(code_of([&] { dir->open("link", OpenMode::read); }), ELOOP);
  EXPECT_EQ(code_of([&] { dir->open("link", OpenMode::append); }), ELOOP);
  EXPECT_EQ(dir->open("link", OpenMode::create), nullptr);
  EXPECT_EQ(dir->status("link")->kind, FileKind::symlink);
  EXPECT_NE(code_of([&] { dir->open_directory("link", true); }), 0);
}

TEST_P(AnyFileSystem, FilesOutsideRunDirectories) {
  fs.open_file(place->folder / "m", OpenMode::append)->write_at(bytes_of("x"), 0);
  fs.open_file(place->folder / "m", OpenMode::append)->write_at(bytes_of("y"), 0);
  EXPECT_EQ(text_of(*fs.open_file(place->folder / "m", OpenMode::read)), "xy");
  EXPECT_EQ(code_of([&] { fs.open_file(place->folder / "gone", OpenMode::read); }), ENOENT);
  EXPECT_EQ(code_of([&] { fs.open_file(place->folder / "m", OpenMode::create); }), EEXIST);
  EXPECT_EQ(code_of([&] { fs.open_file(place->folder / "gone/x", OpenMode::append); }), ENOENT);
}

TEST_P(AnyFileSystem, ClosingTwiceIsHarmless) {
  const auto file = dir->open("a", OpenMode::create);
  file->close();
  file->close();
  EXPECT_EQ(code_of([&] { file->write_at(bytes_of("x"), 0); }), EBADF);
}

INSTANTIATE_TEST_SUITE_P(All, AnyFileSystem, testing::ValuesIn(kKinds),
                         [](const auto& param) { return std::string(param.param.name); });

}}  // namespace holdfast
