#include "holdfast/store/internal/machine.h"

#include <sys/utsname.h>

#include <array>
#include <span>

#include "holdfast/base/error.h"
#include "holdfast/io/file_system.h"

namespace holdfast::inline v1::internal {

std::string host_name() {
  utsname names{};
  return uname(&names) == 0 ? names.nodename : "";
}

std::string boot_id() {
  static const std::string id = [] {
    std::array<char, 36> text{};
    try {
      const auto file = FileSystem::real().open_file("/proc/sys/kernel/random/boot_id", OpenMode::read);
      return std::string(text.data(), file->read_at(std::as_writable_bytes(std::span(text)), 0));
    } catch (const IoError&) {
      return std::string();
    }
  }();
  return id;
}

}  // namespace holdfast::inline v1::internal
