// Where bench/peers and .deps/peers lie: the source tree, or what bench/gpu_pack has made of it elsewhere.
//
// Threads: any.
#pragma once

#include <filesystem>
#include <system_error>

namespace holdfast::bench {

inline std::filesystem::path root_folder() {
  std::error_code none;
  auto folder = std::filesystem::read_symlink("/proc/self/exe", none).parent_path();
  for (; folder.has_relative_path(); folder = folder.parent_path()) {
    if (std::filesystem::exists(folder / "bench/peers", none)) return folder;
  }
  return HOLDFAST_SOURCE_DIR;  // a build folder outside of the tree
}

}  // namespace holdfast::bench
