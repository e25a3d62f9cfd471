#include "holdfast/mirror/kernel_files.h"

#include <cstddef>
#include <span>
#include <vector>

namespace holdfast { inline namespace v0_2 {

std::set<std::string> kernel_files(const Directory& folder) {
  std::set<std::string> names;
  for (const DirectoryEntry& entry : folder.list()) {
    if (entry.name.size() != kKernelNameDigits) continue;
    if (entry.name.find_first_not_of("0123456789abcdef") != std::string::npos) continue;
    const auto status = folder.status(entry.name);
    if (status && status->kind == FileKind::regular && status->size <= kLongestKernelFile) {
      names.insert(entry.name);
    }
  }
  return names;
}

void copy_kernel_files(Directory& from, Directory& to) {
  const std::set<std::string> there = kernel_files(to);
  for (const std::string& name : kernel_files(from)) {
    if (there.contains(name)) continue;
    const auto file = from.open(name, OpenMode::read);
    if (!file || file->size() > kLongestKernelFile) continue;
    std::vector<std::byte> bytes(file->size());
    bytes.resize(file->read_at(bytes, 0));
    const std::string temporary = name + ".tmp";
    to.unlink(temporary);  // of a copy that was broken off
    const auto copy = to.open(temporary, OpenMode::create);
    if (!copy) continue;  // another process copies it just now
    copy->write_at(bytes, 0);
    copy->close();
    to.rename_new(temporary, name);
  }
}

}}  // namespace holdfast::v0_2
