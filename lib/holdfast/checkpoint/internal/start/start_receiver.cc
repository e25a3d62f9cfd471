#include "holdfast/checkpoint/internal/start/start_receiver.h"

#include <cerrno>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/text.h"
#include "holdfast/checkpoint/internal/start/rank_peek.h"
#include "holdfast/checkpoint/internal/start/run_start.h"
#include "holdfast/format/reader.h"
#include "holdfast/ranks/received_file.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

std::string index_digest(const File& file) {
  const auto index = read_index(file);
  const auto* const known = std::get_if<CheckpointIndex>(&index);
  // No digest reads so: a rank that sees a damaged file never agrees with rank 0.
  return known != nullptr ? to_hex(known->digest) : "damaged";
}

void StartReceiver::check_head(std::vector<std::byte> head, std::uint64_t file_bytes) {
  const auto file = head_of_file(std::move(head), file_bytes);
  const auto read = read_index(*file);
  if (const auto* const rejection = std::get_if<Rejection>(&read)) {
    throw IoError("receive", "the checkpoint's head", EIO,
                  "rank 0 sent something else (" + rejection->reason + ")");
  }
  const auto& index = std::get<CheckpointIndex>(read);
  std::vector<TensorSpec> tensors;
  for (const IndexedTensor& tensor : index.tensors) tensors.push_back(tensor.spec);
  finder_.check(std::move(tensors), index.attributes);
}

// That file in this rank's own view of the volume.
std::unique_ptr<File> StartReceiver::file_seen(const std::string& name) const {
  const auto directory = run_.file_system.open_directory(run_.options.directory, false);
  auto file = directory ? directory->open(name, OpenMode::read) : nullptr;
  if (!file) {
    throw IoError("open", (run_.options.directory / name).native(), ENOENT,
                  "rank 0 sees it; is it the same volume here?");
  }
  return file;
}

std::shared_ptr<Arena> StartReceiver::receive(const Verdict& verdict) {
  if (verdict.bytes == 0) return nullptr;
  const ReadingPlan plan = plan_of(verdict, group_);
  if (!plan.sends()) return nullptr;
  // A rank that has the bytes from elsewhere still takes part in the broadcast, and keeps nothing.
  return receive_file(group_.channel(), verdict.bytes,
                      plan.from[static_cast<std::size_t>(group_.rank())] == ReadingPlan::kSent);
}

StartedRun StartReceiver::load(const Verdict& verdict, std::shared_ptr<Arena> received) {
  StartedRun started{.began = run_.clock.now()};
  started.record.world_size = group_.world_size();
  started.record.attempt = verdict.attempt;
  started.resumed.fresh = verdict.fresh;
  started.resumed.branch = verdict.branch;
  // A fresh start has no loss, and a checkpoint may record none.
  started.resumed.loss = std::numeric_limits<double>::quiet_NaN();
  started.durable = {verdict.durable, verdict.checkpoint, run_.clock.now()};

  Start start;
  start.fresh = verdict.fresh;
  start.name = verdict.checkpoint;
  if (start.fresh) finder_.check_untrained();
  if (verdict.bytes > 0) load_file(start, verdict, std::move(received));
  if (!start.fresh) {
    // Again, because check_head() knew only the head that rank 0 sent.
    finder_.check(start);
    load_state(run_, start, group_.rank(), started);
    log_info("resuming from step {} as rank 0 does ({})", start.step,
             format_duration(run_.clock.now() - started.began));
  }
  run_.verifier.stop_keeping();
  return started;
}

void StartReceiver::load_file(Start& start, const Verdict& verdict, std::shared_ptr<Arena> received) {
  const ReadingPlan plan = plan_of(verdict, group_);
  const int from = plan.from[static_cast<std::size_t>(group_.rank())];
  if (from == ReadingPlan::kSent) {
    const auto file = file_of(received);
    load_from(start, *file, std::move(received));
  } else if (plan.offers(group_.rank())) {
    read_for_others(start, verdict);
  } else if (from == group_.rank() || !take(start, verdict, from)) {
    read(start, verdict);
  }
}

// False: this rank can read the file itself, and has to.
bool StartReceiver::take(Start& start, const Verdict& verdict, int from) {
  OfferedImage offered = verdict.image;
  if (from != 0) {
    const nlohmann::json told = hear_at_start(run_, group_, from, kImage, kStartWait);
    throw_if_failed(told, from);
    offered = told.get<OfferedImage>();
  }
  MappedImage mapped = map_image(offered, verdict.bytes);
  if (mapped.image) {
    const auto file = file_of(mapped.image);
    if (index_digest(*file) == offered.index) {
      load_from(start, *file, std::move(mapped.image), true);
      return true;
    }
    mapped.why_not = "it is of another file";
  }
  const std::string what =
      "the image of " + start.name + " in the memory of rank " + std::to_string(from) + " is not to be had";
  if (verdict.index.empty() || !group_.sees(group_.rank())) {
    throw Error(what + " (" + mapped.why_not + "); the newest checkpoint stands: start all ranks again",
                ExitCode::interrupted);
  }
  log_warning("{} ({}); this rank reads the file itself", what, mapped.why_not);
  return false;
}

void StartReceiver::read(Start& start, const Verdict& verdict) {
  const auto file = file_seen(start.name);
  if (index_digest(*file) != verdict.index) {
    throw IoError("read", (run_.options.directory / start.name).native(), EIO,
                  "another file than rank 0 reads there; is it the same volume?");
  }
  load_from(start, *file, nullptr);
}

void StartReceiver::read_for_others(Start& start, const Verdict& verdict) {
  run_.verifier.share_images();
  const auto offered = telling_errors(
      [&] {
        read(start, verdict);
        offered_ = start.snapshot->arena;
        return offer_image(offered_, start.index, *file_seen(start.name));
      },
      [&](const Error& error) { group_.tell(kImage, failure_of(error)); });
  group_.tell(kImage, offered);
}

// `received`: the file's bytes, which become the image of the state; null: they are read from `file`.
void StartReceiver::load_from(Start& start, const File& file, std::shared_ptr<Arena> received,
                              bool verified) {
  const char* const how = received ? "receive" : "read";
  if (start.fresh) {
    auto weights = finder_.weights_in(file);
    if (const auto* const rejection = std::get_if<Rejection>(&weights)) {
      throw IoError(how, run_.options.start.init_from.native(), EIO, rejection->reason);
    }
    finder_.load_weights(*std::get<std::shared_ptr<Snapshot>>(weights));
    return;
  }
  auto loaded =
      received ? run_.verifier.load_in(file, std::move(received), verified) : run_.verifier.load(file);
  if (const auto* const rejection = std::get_if<Rejection>(&loaded)) {
    throw IoError(how, start.name, EIO,
                  (how == std::string_view("read") ? "damaged as this rank sees it ("
                                                   : "rank 0 sent something else (") +
                      rejection->reason + ")");
  }
  auto& [index, snapshot] = std::get<FileVerifier::Loaded>(loaded);
  start.step = index.step;
  start.record = run_record_of(index.attributes);
  start.attributes = std::move(index.attributes);
  start.index = index.digest;
  start.snapshot = std::move(snapshot);
}

}}}  // namespace holdfast::v0_2::internal
