#include "support/interop.h"

#include <filesystem>

namespace holdfast::test {

std::string interop_python() {
  const std::filesystem::path folder = HOLDFAST_SOURCE_DIR "/.deps/interop";
  std::error_code error;
  if (!std::filesystem::exists(folder / "complete", error)) return {};
  return folder / "bin/python";
}

std::string missing_interop() { return "there is no .deps/interop (cmake/bootstrap --interop)"; }

}  // namespace holdfast::test
