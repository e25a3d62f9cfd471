#include "holdfast/checkpoint/internal/start/start_peek.h"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>
#include <variant>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/format/reader.h"
#include "holdfast/mirror/home.h"
#include "holdfast/mirror/pace.h"
#include "holdfast/ranks/ranked_state.h"
#include "holdfast/ranks/received_file.h"
#include "holdfast/snapshot/digested_tensors.h"
#include "holdfast/snapshot/overrides.h"
#include "holdfast/store/names.h"

namespace holdfast { inline namespace v0_2 {

const TensorSpec* Peeked::tensor(std::string_view name) const {
  const auto found =
      std::find_if(tensors.begin(), tensors.end(), [&](const TensorSpec& spec) { return spec.name == name; });
  return found == tensors.end() ? nullptr : &*found;
}

bool Peeked::has_part(std::string_view name) const {
  if (!attributes.has("state.parts")) return false;
  const auto& parts = attributes.get_strings("state.parts");  // "module model"
  return std::any_of(parts.begin(), parts.end(),
                     [&](const std::string& part) { return part.substr(part.find(' ') + 1) == name; });
}

std::int64_t Peeked::groups(const std::string& optimizer) const {
  std::int64_t count = 0;
  while (attributes.has(optimizer + ".group." + std::to_string(count) + ".parameters")) ++count;
  return count;
}

namespace internal {
namespace {

constexpr std::size_t kFirstTry = 1u << 20;  // bytes of a head that arrives; most heads are smaller
constexpr Duration kHomePause = std::chrono::seconds(1);

struct HeadIsHere {};  // ends the read of a file in HOME

std::optional<CheckpointIndex> index_of(const CheckpointHead& head) {
  auto read = read_index(*head_of_file(head.bytes, head.file_bytes));
  if (auto* const index = std::get_if<CheckpointIndex>(&read)) return std::move(*index);
  return std::nullopt;
}

CheckpointHead head_in(const File& file, std::string name) {
  const auto read = read_index(file);
  if (const auto* const rejection = std::get_if<Rejection>(&read)) {
    throw IoError("read", name, EIO,
                  "it was whole a moment ago and now is not (" + rejection->reason + "); check the volume");
  }
  CheckpointHead head{.name = std::move(name), .file_bytes = file.size(), .bytes = {}};
  head.bytes.resize(std::get<CheckpointIndex>(read).user_block);
  file.read_at(head.bytes, 0);
  return head;
}

// nullopt: what lies there is damaged.
std::optional<CheckpointHead> head_at_home(Home& home, const HomeFile& file) {
  CheckpointHead head{.name = checkpoint_name(file.id), .file_bytes = file.bytes, .bytes = {}};
  std::size_t next = kFirstTry;
  try {
    home.read(file, [&](std::span<const std::byte> bytes) {
      head.bytes.insert(head.bytes.end(), bytes.begin(), bytes.end());
      if (head.bytes.size() < next) return;
      next = head.bytes.size() * 2;
      if (index_of(head)) throw HeadIsHere();
    });
  } catch (const HeadIsHere&) {
  }
  if (!index_of(head)) return std::nullopt;
  return head;
}

// The checkpoint that resume() would fetch, if HOME has a newer one than the newest here.
std::optional<CheckpointHead> newer_at_home(Home& home, const std::optional<CheckpointInfo>& here) {
  for (const HomeFile& file : home.list()) {
    if (here && file.id <= FileId{.attempt = here->attempt, .step = here->step}) break;
    if (auto head = head_at_home(home, file)) return head;
    log_info("{} in {} is damaged; an older one is looked at", checkpoint_name(file.id), home.name());
  }
  return std::nullopt;
}

// As long as HOME is away, what lies here counts; without anything here it is waited for, as resume() does.
std::optional<CheckpointHead> look_at_home(Run& run, StartWait& wait,
                                           const std::optional<CheckpointInfo>& here) {
  if (!wait.asks_home()) return std::nullopt;
  const SteadyTime end = run.clock.now() + run.options.start.home_wait;
  while (true) {
    holdfast::Pace pace = wait.pace();
    // A call that hangs is an answer, too.
    pace.set_patience(std::max<Duration>(run.options.start.home_wait, std::chrono::seconds(30)));
    try {
      return newer_at_home(*wait.open(pace), here);
    } catch (const Error& error) {
      if (error.exit_code() != ExitCode::io_failed) throw;
      if (here) {
        log_info("{}: peek() sees what {} holds", error.what(), run.options.directory.native());
        return std::nullopt;
      }
      if (run.clock.now() >= end) throw;
      pace.wait(kHomePause);
    }
  }
}

}  // namespace

std::optional<CheckpointHead> find_head(Run& run, StartWait& wait, StartFinder& finder) {
  wait.await_volume();
  finder.end_reading_ahead();
  const auto store = finder.open_store();
  const Selection found = store->preflight();
  // A starting point that somebody chose is looked for here alone.
  if (run.options.start.resume_from.empty()) {
    if (auto head = look_at_home(run, wait, found.newest)) return head;
  }
  const Start start = finder.candidate(*store, found);
  if (start.fresh) return std::nullopt;
  const auto file = start.outside ? run.file_system.open_file(finder.outside(), OpenMode::read)
                                  : store->open(*found.newest);
  if (!file) {
    throw IoError("open", start.name, ENOENT,
                  "the checkpoint vanished while it was read; is another program deleting files there?");
  }
  return head_in(*file, start.name);
}

Peeked peeked_in(CheckpointHead head) {
  auto index = index_of(head);
  if (!index) throw IoError("read", head.name, EIO, "its head is not what rank 0 has read");
  Peeked peeked;
  peeked.step = index->step;
  peeked.checkpoint = std::move(head.name);
  peeked.attributes = std::move(index->attributes);
  const Attributes& all = peeked.attributes;
  if (all.has("cursor.epoch")) peeked.epoch = all.get_int("cursor.epoch");
  if (all.has(kStateOptions)) {
    for (const std::string& name : all.get_strings(kStateOptions)) {
      if (const Attribute* const option = all.find(name))
        peeked.options.set(name, option->value, option->role);
    }
  }
  std::vector<TensorSpec> tensors;
  for (IndexedTensor& tensor : index->tensors) tensors.push_back(std::move(tensor.spec));
  peeked.tensors = without_ranks(tensors);
  for (DigestedTensor& frozen : digested_tensors(all)) peeked.tensors.push_back(std::move(frozen.spec));
  return peeked;
}

}  // namespace internal
}}  // namespace holdfast::v0_2
