// Whether a program rclone can write to a remote only where nothing lies yet: S3's conditional write, by
// `--header-upload "If-None-Match: *"`. rclone 1.72 and newer send the header to S3; older versions say on
// standard error that they do not know it, and write all the same. A store may ignore it, too. So a write
// that succeeds says nothing.
//
// Errors: none; what is not understood is a no. Threads: pure.
#pragma once

#include <string_view>

namespace holdfast { inline namespace v0_2 {

inline constexpr char kOnlyWhereNothingLies[] = "--header-upload=If-None-Match: *";

// `version`: what `rclone version` prints.
bool rclone_sends_conditions(std::string_view version);
// True if the remote of `root`, REMOTE:PATH, is S3 itself: no alias, no encryption above it. `remotes`: what
// `rclone listremotes --long` prints.
bool is_s3_remote(std::string_view root, std::string_view remotes);

}}  // namespace holdfast::v0_2
