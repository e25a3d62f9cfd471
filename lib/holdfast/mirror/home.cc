#include "holdfast/mirror/home.h"

#include "holdfast/mirror/directory_home.h"
#include "holdfast/mirror/rclone_home.h"

namespace holdfast { inline namespace v0_2 {

std::string without_slashes(std::string place) {
  // The root directory keeps its slash.
  while (place.size() > 1 && place.ends_with('/')) place.pop_back();
  return place;
}

std::unique_ptr<Home> open_home(const HomeOptions& options, FileSystem& file_system, CopyVerifier& verifier,
                                Pace& pace) {
  if (options.place.empty())
    throw UsageError("the home of the checkpoints needs a directory or rclone:REMOTE:PATH");
  if (options.keep < 2) {
    throw UsageError("--home-keep " + std::to_string(options.keep) +
                     ": at least 2, because the newest copy may be the one that is damaged");
  }
  if (options.place.starts_with(kRclonePrefix)) return std::make_unique<RcloneHome>(options, verifier, pace);
  return std::make_unique<DirectoryHome>(options, file_system, verifier, pace);
}

}}  // namespace holdfast::v0_2
