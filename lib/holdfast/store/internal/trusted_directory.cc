#include "holdfast/store/internal/trusted_directory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/store/attempt.h"
#include "holdfast/store/names.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

bool is_in_group(gid_t group) {
  if (group == getegid()) return true;
  // A group may be added between the two calls, so the second one decides about the size.
  std::vector<gid_t> groups(static_cast<std::size_t>(std::max(getgroups(0, nullptr), 0)));
  const int found = getgroups(static_cast<int>(groups.size()), groups.data());
  groups.resize(static_cast<std::size_t>(std::max(found, 0)));
  return std::find(groups.begin(), groups.end(), group) != groups.end();
}

void remove_question(Directory& run, const std::string& name) {
  try {
    run.unlink(name);
  } catch (const IoError& error) {
    log_debug("a temporary file stays for the next attempt to remove: {}", error.what());
  }
}

// Status of a new file that this process makes there; nullopt if it may not make one. The name carries an
// earlier attempt, or the first, so that the next sweep removes it if a crash leaves it. The sweep may also
// come at once, hence the loop. The name is random, because process ids repeat: in containers, and on other
// machines.
std::optional<FileStatus> what_we_make(const RunDirectory& directory) {
  // Only a sweep at the same moment takes a random name away, so a second try nearly always works.
  constexpr int kTries = 10;
  Directory& run = directory.run();
  const AttemptNumber attempt = std::max<AttemptNumber>(highest_attempt(run, directory.attempts()), 1);
  std::random_device random;
  for (int tries = 0; tries < kTries; ++tries) {
    const std::string name =
        temporary_name(attempt, "owner-" + std::to_string(random()) + "-" + std::to_string(random()));
    try {
      if (!run.open(name, OpenMode::create)) continue;
    } catch (const IoError& error) {
      // A directory that this process may only read: its own mode and owner are all there is to judge by.
      if (error.code() == EACCES) return std::nullopt;
      throw;
    }
    const auto made = run.status(name);
    remove_question(run, name);
    if (made) return made;
  }
  throw IoError("create", directory.path(), EEXIST, "new files there disappear or exist already; try again");
}

// Who else may write, and the remedy. Empty: nobody, as far as the server shows.
std::string who_else(const RunDirectory& directory) {
  const FileStatus found = directory.run().own_status();
  const bool anybody = (found.mode & S_IWOTH) != 0;
  const bool group = (found.mode & S_IWGRP) != 0 && !is_in_group(found.group);
  // Root can change any file anyway.
  const bool owner = found.owner != geteuid() && found.owner != 0;
  if (!anybody && !group && !owner) return "";
  const auto made = what_we_make(directory);
  // File systems without owners (FAT, SMB) show invented modes. A file made here tells what they are worth.
  if ((anybody || group) && made && (made->mode & (S_IRWXG | S_IRWXO)) != 0) {
    return "modes are not kept there, a file made for its owner alone is shown open to others: mount the "
           "volume "
           "with dir_mode=0700, or what its file system calls that";
  }
  if (anybody) return "anybody may write to it: chmod o-w it";
  // Under setgid a file inherits the directory's group, which says nothing about the process that made it.
  const bool acts_as_group = made && (found.mode & S_ISGID) == 0 && made->group == found.group;
  if (group && !acts_as_group) {
    return "group " + std::to_string(found.group) +
           ", which this process is not in, may write to it: chmod g-w it";
  }
  const bool acts_as_owner = made && made->owner == found.owner;
  if (owner && !acts_as_owner) {
    return "it belongs to user " + std::to_string(found.owner) + ", and this process is user " +
           std::to_string(geteuid()) + ": chown it";
  }
  return "";
}

}  // namespace

void require_trusted(const RunDirectory& directory) {
  const std::string who = who_else(directory);
  if (who.empty()) return;
  throw RefusedError(directory.path() + " is not this user's alone (" + who +
                     "), so somebody else could choose what the run goes on from; or accept that with "
                     "CheckpointerOptions::start.trust_directory (--trust-directory in Holdfast's example)");
}

}}}  // namespace holdfast::v0_2::internal
