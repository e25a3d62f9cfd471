// Writes the newest golden file of format 1, once: it refuses while there is one. Prints its `state=`.
//
//   rm tests/golden/format_v1_attrs.h5 && build/release/tests/write_format_v1
#include <cstdio>
#include <exception>
#include <filesystem>

#include "format_v1.h"

int main() {
  using namespace holdfast;
  using namespace holdfast::test;
  try {
    const auto out = FileSystem::real().open_file(kGoldenWithAttrs, OpenMode::create);
    const auto plan = golden_plan();
    const auto snapshot = golden_snapshot(*plan);
    const auto digests = write_image(*out, *snapshot, *plan);
    out->close();
    std::filesystem::permissions(kGoldenWithAttrs, std::filesystem::perms(0644));
    std::printf("state=%s\n", to_hex(state_digest(*snapshot, digests)).c_str());
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "write_format_v1: %s\n", error.what());
    return 1;
  }
}
