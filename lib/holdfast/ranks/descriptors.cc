#include "holdfast/ranks/descriptors.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr std::uint64_t kOwn = 512;     // files, libraries, devices; clients that have proved nothing
constexpr std::uint64_t kOfStore = 3;   // connections of a rank to the store
constexpr std::uint64_t kOfMeshes = 2;  // groups of Gloo, each with a connection to every rank

}  // namespace

void make_room_for_ranks(int rank, int world_size) {
  const auto ranks = static_cast<std::uint64_t>(world_size);
  const std::uint64_t least = (rank == 0 ? kOfStore : 0) * ranks;
  // At the start each rank may have one more connection to rank 0, which has proved nothing yet.
  const std::uint64_t wanted = kOwn + least + kOfMeshes * ranks + (rank == 0 ? ranks : 0);
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
  const rlimit raised{.rlim_cur = std::min<rlim_t>(wanted, limit.rlim_max), .rlim_max = limit.rlim_max};
  // Raising the soft limit is allowed to every process; the hard limit is the administrator's.
  if (raised.rlim_cur > limit.rlim_cur && setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  if (limit.rlim_cur < least) {
    throw UsageError("rank 0 of " + std::to_string(world_size) + " ranks needs about " +
                     std::to_string(wanted) + " open files, but its hard limit is " +
                     std::to_string(limit.rlim_max) +
                     ": raise it (ulimit -Hn; systemd: LimitNOFILE; Docker: ulimit nofile)");
  }
  if (limit.rlim_cur < wanted) {
    log_warning("{} ranks may need {} open files in each process, and the limit is {}: raise it (ulimit -Hn)",
                world_size, wanted, limit.rlim_cur);
  }
}

}}  // namespace holdfast::v0_2
