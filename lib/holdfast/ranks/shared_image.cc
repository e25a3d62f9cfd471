#include "holdfast/ranks/shared_image.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>
#include <utility>
#include <variant>

#include "holdfast/base/error.h"
#include "holdfast/base/system/machine.h"
#include "holdfast/format/reader.h"
#include "holdfast/snapshot/shared_arena.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

class OpenImage {
 public:
  explicit OpenImage(const std::string& path) : descriptor_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~OpenImage() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  OpenImage(const OpenImage&) = delete;
  OpenImage& operator=(const OpenImage&) = delete;
  int get() const { return descriptor_; }

 private:
  const int descriptor_;
};

std::string text_of(int code) { return std::generic_category().message(code); }

std::string_view boot_of(std::string_view host) { return host.substr(0, host.find(' ')); }

}  // namespace

void to_json(nlohmann::json& json, const OfferedImage& image) {
  json = {{"why_not", image.why_not},
          {"pid", image.process.pid},
          {"started", image.process.started},
          {"pid_namespace", image.process.pid_namespace},
          {"descriptor", image.descriptor},
          {"device", image.device},
          {"inode", image.inode},
          {"index", image.index}};
}

void from_json(const nlohmann::json& json, OfferedImage& image) {
  image = {};
  if (!json.is_object()) return;
  image.why_not = json.value("why_not", image.why_not);
  image.process = {.pid = json.value("pid", std::int64_t{0}),
                   .started = json.value("started", std::uint64_t{0}),
                   .pid_namespace = json.value("pid_namespace", std::uint64_t{0})};
  image.descriptor = json.value("descriptor", -1);
  image.device = json.value("device", std::uint64_t{0});
  image.inode = json.value("inode", std::uint64_t{0});
  image.index = json.value("index", std::string());
}

OfferedImage place_of(const std::shared_ptr<Arena>& arena) {
  OfferedImage offered;
  const SharedMemory* const memory = shared_memory_of(arena);
  if (memory == nullptr) return offered;
  struct stat status {};
  offered.why_not = memory->why_not;
  if (memory->descriptor < 0) return offered;
  if (fstat(memory->descriptor, &status) != 0) {
    offered.why_not = "fstat: " + text_of(errno);
    return offered;
  }
  offered.process = own_process();
  offered.descriptor = memory->descriptor;
  offered.device = status.st_dev;
  offered.inode = status.st_ino;
  return offered;
}

OfferedImage offer_image(const std::shared_ptr<Arena>& arena, const Digest& index, const File& file) {
  OfferedImage offered = place_of(arena);
  if (!offered.why_not.empty()) return offered;
  const auto read = read_index(file);
  const auto* const now = std::get_if<CheckpointIndex>(&read);
  if (now == nullptr || now->digest != index || now->file_length != arena->size()) {
    offered.why_not = "the file has changed since it was read";
    return offered;
  }
  file.read_at(arena->bytes().first(now->user_block), 0);
  offered.index = to_hex(index);
  return offered;
}

MappedImage map_image(const OfferedImage& offered, std::uint64_t bytes) {
  if (!offered.why_not.empty()) return {.image = nullptr, .why_not = offered.why_not};
  if (!is_running(offered.process)) {
    return {.image = nullptr, .why_not = "its process does not run where this one could see it"};
  }
  const std::string path =
      "/proc/" + std::to_string(offered.process.pid) + "/fd/" + std::to_string(offered.descriptor);
  const OpenImage file(path);
  if (file.get() < 0) return {.image = nullptr, .why_not = path + ": " + text_of(errno)};
  struct stat status {};
  if (fstat(file.get(), &status) != 0 || status.st_dev != offered.device || status.st_ino != offered.inode ||
      static_cast<std::uint64_t>(status.st_size) < bytes) {
    return {.image = nullptr, .why_not = path + " is another file"};
  }
  try {
    return {.image = map_shared_arena(file.get(), bytes), .why_not = {}};
  } catch (const NoImageMemory& error) {
    return {.image = nullptr, .why_not = error.what()};
  }
}

std::string own_host() {
  return boot_id() + ' ' + std::to_string(own_process().pid_namespace) + ' ' + std::to_string(geteuid());
}

bool same_machine(const std::string& host, const std::string& other) {
  return !boot_of(host).empty() && boot_of(host) == boot_of(other);
}

bool ReadingPlan::sends() const { return std::find(from.begin(), from.end(), kSent) != from.end(); }

bool ReadingPlan::offers(int rank) const {
  for (std::size_t other = 0; other < from.size(); ++other) {
    if (from[other] == rank && static_cast<int>(other) != rank) return true;
  }
  return false;
}

ReadingPlan plan_reading(const std::vector<int>& hosts, const std::vector<bool>& sees, bool image) {
  ReadingPlan plan;
  plan.from.assign(hosts.size(), ReadingPlan::kSent);
  std::vector<int> reader(hosts.size(), -1);  // by the lowest rank of a host
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    const auto host = static_cast<std::size_t>(hosts[rank]);
    if (rank == 0 || (host == 0 && image)) {
      plan.from[rank] = 0;
    } else if (!sees.empty() && sees[rank]) {
      // The first of a host that comes here reads for the others.
      if (reader[host] < 0) reader[host] = static_cast<int>(rank);
      plan.from[rank] = reader[host];
    }
  }
  return plan;
}

}}}  // namespace holdfast::v0_2::internal
