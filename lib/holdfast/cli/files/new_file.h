// A file that a command writes for other tools: under a temporary name until it is complete.
//
//   check_replaceable(*directory, path, force);
//   NewFile made(*directory, "weights.pt");
//   …made.file()…
//   made.publish(force);
//
// It has the mode of any new file (umask), or mode and owner of the file that it replaces. The destructor
// removes it unless it was published. Errors: UsageError, IoError. Threads: one.
// Durability: after publish() the file is durable under its name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "holdfast/io/file_system.h"

namespace holdfast { inline namespace v0_2 {

class NewFile {
 public:
  NewFile(Directory& directory, std::string name, std::string temporary = new_temporary());
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  File& file() { return *file_; }
  // The file is complete: durable under its temporary name, and closed. Before publish(), which else does so,
  // where many files are made.
  void complete();
  std::uint64_t size() const { return size_; }  // of a complete one
  const std::string& name() const { return name_; }
  // A name for a file until it is published; no other process or call gets the same one.
  static std::string new_temporary();
  static bool is_temporary(const std::string& name);
  // As a whole. Throws UsageError if a file of that name appeared meanwhile and `replace` is false.
  void publish(bool replace);

 private:
  Directory& directory_;
  std::string name_;
  std::string temporary_;
  std::unique_ptr<File> file_;  // null: complete
  std::uint64_t size_ = 0;
  bool published_ = false;
};

// Throws UsageError, with the option --to, for what a new file must not replace: a folder, a link, a
// checkpoint; without `force` any file.
void check_replaceable(Directory& directory, const std::filesystem::path& to, bool force);

}}  // namespace holdfast::v0_2
