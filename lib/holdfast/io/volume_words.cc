// A volume's report in sentences for people.
#include "holdfast/base/text.h"
#include "holdfast/io/volume_report.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using Weight = VolumeRemark::Weight;

// The state of a small model, several times.
constexpr std::uint64_t kLittleRoom = std::uint64_t{1} << 30;
constexpr std::uint64_t kFewInodes = 1000;

void say_kind(const VolumeReport& report, std::vector<VolumeRemark>& remarks) {
  std::string text = report.kind.name;
  if (report.mount) {
    // These names do not tell which file system it is; the type of the mount does.
    if (report.kind.name.starts_with("FUSE") || report.kind.name.starts_with("unknown")) {
      text += " (" + report.mount->type + ")";
    }
    text += " from " + report.mount->source + ", mounted at " + report.mount->mount_point;
  }
  // A note, not a warning: such volumes work, but a person should know what they promise.
  const bool doubtful = report.kind.network || report.kind.in_memory || !report.kind.remark.empty();
  if (!report.kind.remark.empty()) text += ": " + report.kind.remark;
  remarks.push_back({report.kind.in_memory ? Weight::warning : doubtful ? Weight::note : Weight::good, text});
  if (report.read_only) {
    remarks.push_back({Weight::warning, "mounted read-only: runs can resume from here, but not save"});
  }
  if (report.on_root) {
    remarks.push_back(
        {Weight::warning,
         "on the root file system: if the machine is taken away, its checkpoints may go with it"});
  }
  if (report.mount && report.mount->has("discard")) {
    remarks.push_back(
        {Weight::note,
         "mounted with discard: unlinking large files may take seconds; Holdfast deletes beside "
         "the training, but fstrim once a day is gentler"});
  }
}

void say_room(const VolumeReport& report, std::vector<VolumeRemark>& remarks) {
  remarks.push_back({report.bytes_free < kLittleRoom ? Weight::warning : Weight::good,
                     format_bytes(report.bytes_free) + " free of " + format_bytes(report.bytes_in_all) +
                         ": at least three states must fit, two that stay and one that is being written"});
  if (report.inodes_free && *report.inodes_free < kFewInodes) {
    remarks.push_back({Weight::warning, format_count(static_cast<std::int64_t>(*report.inodes_free)) +
                                            " inodes free: a save needs a new one"});
  }
}

void say_calls(const VolumeReport& report, std::vector<VolumeRemark>& remarks) {
  const auto say = [&](bool works, const std::string& yes, const std::string& no,
                       Weight otherwise = Weight::note) {
    remarks.push_back({works ? Weight::good : otherwise, works ? yes : no});
  };
  std::string direct = "O_DIRECT works: saves go past the page cache, which stays with the training";
  if (report.direct_io.offset_alignment > 4096 || report.direct_io.memory_alignment > 4096) {
    direct = "O_DIRECT wants blocks of " +
             format_bytes(std::max(report.direct_io.offset_alignment, report.direct_io.memory_alignment)) +
             ", and Holdfast's are of 4096 bytes: saves go through the page cache where a write is refused";
  } else if (report.direct_io.offset_alignment > 0) {
    direct += " (aligned to " + format_bytes(report.direct_io.offset_alignment) +
              "; Holdfast's blocks are of 4096 B)";
  }
  say(report.direct_io.works, direct,
      "no O_DIRECT: saves go through the page cache, and a read-back may come from the page cache");
  say(report.reserves_space, "fallocate works: a full volume shows before the first byte of a save",
      "no fallocate: a full volume shows in the middle of a save, which costs that save alone");
  if (report.renames_exclusive) {
    say(true, "rename without replacing works: no checkpoint ever takes the place of another", "");
  } else {
    say(report.hard_links,
        "no rename without replacing: Holdfast links the new name and unlinks the old one, which is as safe",
        "neither rename without replacing nor hard links: nothing can be committed here", Weight::warning);
  }
  say(report.syncs_directories,
      report.kind.in_memory ? "fsync of directories works, but memory loses everything in a power cut"
                            : "fsync of directories works: a committed name survives a power cut",
      "directories cannot be synced: nothing can be committed here", Weight::warning);
}

}  // namespace

std::vector<VolumeRemark> explain(const VolumeReport& report) {
  std::vector<VolumeRemark> remarks;
  say_kind(report, remarks);
  say_room(report, remarks);
  // A probe makes no trial on a read-only volume, so the answers below were never asked for.
  if (report.read_only) return remarks;
  say_calls(report, remarks);
  if (report.writing) {
    remarks.push_back({Weight::good, "writes " +
                                         format_byte_rate(report.writing->bytes, report.writing->time) +
                                         " (" + format_bytes(report.writing->bytes) + " in " +
                                         format_duration(report.writing->time) + ", fsync included)"});
  } else if (report.fit()) {
    // Where nothing can be committed, nobody asks for the speed.
    remarks.push_back({Weight::note, "too little room to measure how fast it writes"});
  }
  if (report.committing) {
    remarks.push_back({Weight::good, "commits a small file in " + format_duration(report.committing->median) +
                                         " (median of " + std::to_string(report.committing->count) +
                                         ", slowest " + format_duration(report.committing->slowest) + ")"});
  }
  return remarks;
}

}}  // namespace holdfast::v0_2
