#include "holdfast/base/machine.h"

#include <sys/utsname.h>

#include <fstream>

namespace holdfast::inline v1 {

std::string host_name() {
  utsname names{};
  return uname(&names) == 0 ? names.nodename : "";
}

std::string boot_id() {
  static const std::string id = [] {
    std::string text;
    std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), text);
    return text;
  }();
  return id;
}

}  // namespace holdfast::inline v1
