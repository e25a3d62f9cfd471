// Watches a notice file (notice_file.h has its language): the hook for interruptions that no other source
// knows of.
//
//   monitor.add(std::make_unique<FileSource>("/run/holdfast/notice"));
//   …elsewhere:  echo '{"action": "terminate", "in_seconds": 90}' >/run/holdfast/notice
//
// The file appears: news. It is written to or replaced, also by the same words: news again. It goes away, or
// says that nothing is coming: a notice of kind `withdrawn`, when there was one of an interruption. A file
// that is there when the program starts counts. Nothing is ever written, and nothing deleted: whoever made
// the file removes it, or the next start hears it again.
//
// Looks once a second. A file that is empty or cannot be understood may be half written: it is looked at
// again 100 ms later and believed when it has not changed, after 2 s in any case. A whole JSON object is
// believed at once; who writes to a temporary file and renames it is never seen half-way.
//
// Not a notice, but said once: the path is a directory, a pipe or a device, which is never opened for
// reading; it cannot be read (EACCES, EIO …), which leaves open what it says; the folder does not exist,
// which is watched all the same. Symbolic links are followed (mounted Kubernetes volumes consist of them).
// The file should lie on a local file system: a network file system that hangs makes the source deaf and the
// program's end late.
//
// Errors: the constructor throws UsageError for an empty path. poll() throws bad_alloc only,
// and then tells its news at the next.
// Threads: as source.h says.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "holdfast/interruption/source.h"

namespace holdfast::inline v1 {

class FileSource final : public Source {
 public:
  explicit FileSource(const std::filesystem::path& path, Clock& clock = Clock::real());

  std::string_view name() const override { return "file"; }
  std::vector<Notice> poll() override;
  Duration interval() const override;

 private:
  // What tells one state of the file from another.
  struct Content {
    std::string text;  // at most kMaxNoticeFile + 1 bytes
    std::uint64_t inode = 0;
    std::int64_t modified = 0;  // nanoseconds
    bool operator==(const Content&) const = default;
  };
  enum class Seen { content, absent, unknown };

  Seen look(Content& content);
  std::vector<Notice> gone(const char* how) const;
  void say_once(const std::string& what);

  std::filesystem::path path_;
  Clock& clock_;
  std::optional<Content> believed_;  // what was told
  std::optional<Content> doubtful_;  // what may be half written
  int doubts_ = 0;                   // polls since it was first seen
  bool coming_ = false;              // an interruption was told and not withdrawn
  std::string said_;
};

}  // namespace holdfast::inline v1
