// How much room a volume has. Errors: IoError. Threads: any. Waits for the volume, possibly for ever.
#pragma once

#include <cstdint>
#include <filesystem>

namespace holdfast { inline namespace v0_2 {

struct VolumeSpace {
  std::uint64_t free = 0;  // bytes, for this user
  std::uint64_t total = 0;
};
VolumeSpace volume_space(const std::filesystem::path& path);

}}  // namespace holdfast::v0_2
