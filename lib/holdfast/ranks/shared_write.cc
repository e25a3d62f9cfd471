#include "holdfast/ranks/shared_write.h"

#include <algorithm>
#include <exception>
#include <new>
#include <optional>
#include <string_view>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/text.h"
#include "holdfast/format/share_writer.h"
#include "holdfast/ranks/internal/share_message.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using internal::BeginMessage;
using internal::EndMessage;
using internal::ReportMessage;
using internal::SaveTag;

// Rank 0's first text about a save: it begins, or it has ended already.
constexpr char kFirst[] = "first";
constexpr char kReport[] = "report";
constexpr char kEnd[] = "end";

std::string name_of(std::uint64_t number, const char* message) {
  return "save/" + std::to_string(number) + '/' + message;
}

// No rank waits longer for a text (SharedWriteOptions).
constexpr Duration kLongestWait = std::chrono::minutes(15);

// A network file system may show the name that rank 0 created late.
constexpr Duration kShowsWithin = std::chrono::seconds(10);

// Runs `work`; returns the text of its exception, or an empty text.
template <class Work>
std::string failure_of(const Work& work) noexcept {
  try {
    work();
    return {};
  } catch (const std::exception& error) {
    return text_or_out_of_memory([&] {
      const std::string text = what_of(error);
      return text.empty() ? "an exception without a text" : text;
    });
  } catch (...) {
    return text_or_out_of_memory([] { return std::string("an exception of unknown type"); });
  }
}

std::string to_refusal(const SaveTag& tag, int rank, const std::string& failure) {
  ReportMessage report;
  report.refused = true;
  report.failure = failure;
  return to_text(tag, rank, report);
}

std::unique_ptr<File> open_announced(FileSystem& files, const std::filesystem::path& run,
                                     const std::string& name, Clock& clock) {
  const SteadyTime end = clock.now() + kShowsWithin;
  while (true) {
    // Opened again each time, so that NFS asks its server for new names.
    const auto directory = files.open_directory(run, false);
    if (!directory) throw Error(run.native() + " is gone", ExitCode::io_failed);
    if (auto file = directory->open(name, OpenMode::overwrite_direct)) return file;
    if (clock.now() >= end) {
      throw Error(run.native() + "/" + name + " does not exist: rank 0 has given the save up",
                  ExitCode::io_failed);
    }
    clock.sleep_for(std::chrono::milliseconds(100));
  }
}

std::vector<std::byte> bytes_to_send(const Snapshot& snapshot, const Share& share) {
  const std::span<const std::byte> image = std::as_const(*snapshot.arena).bytes();
  std::vector<std::byte> sent;
  sent.reserve(share.sent);
  for (const ByteRange& range : share.sends) {
    const auto part = image.subspan(range.begin, range.size());
    sent.insert(sent.end(), part.begin(), part.end());
  }
  return sent;
}

void put_sent(Snapshot& snapshot, const Share& share, std::span<const std::byte> sent) {
  for (const ByteRange& range : share.sends) {
    const auto part = sent.first(range.size());
    std::copy(part.begin(), part.end(),
              snapshot.arena->bytes().begin() + static_cast<std::ptrdiff_t>(range.begin));
    sent = sent.subspan(range.size());
  }
}

SharedOutcome outcome_of(const EndMessage& end) {
  SharedOutcome outcome;
  switch (end.kind) {
    case EndMessage::Kind::committed:
      outcome.kind = SharedOutcome::Kind::committed;
      outcome.checkpoint = end.text;
      outcome.bytes = end.bytes;
      return outcome;
    case EndMessage::Kind::failed:
      outcome.kind = SharedOutcome::Kind::failed;
      break;
    case EndMessage::Kind::superseded:
      outcome.kind = SharedOutcome::Kind::superseded;
      break;
    case EndMessage::Kind::alone:
      outcome.kind = SharedOutcome::Kind::alone;
      break;
  }
  outcome.reason = end.text;
  return outcome;
}

}  // namespace

// Rank 0's side of one save.
class SharedWriter::Leader {
 public:
  Leader(SharedWriter& writer, std::uint64_t number, const SharedSave& save, Snapshot& snapshot,
         const SharedWriteOptions& options)
      : writer_(writer),
        shares_(*save.shares),
        plan_(*save.plan),
        snapshot_(snapshot),
        options_(options),
        tag_{writer.attempt_, number, snapshot.step} {}

  void begin(const std::string& temporary) {
    writer_.tell(tag_.number, kFirst, to_text(tag_, BeginMessage{shares_.fingerprint, temporary}));
    begun_ = true;
  }

  void write(File& file) {
    const SteadyTime began = writer_.clock_.now();
    pieces_.resize(shares_.pieces.size());
    // The other ranks write at the same time, so most reports have arrived when rank 0's share is done.
    take(0, write_share(file, snapshot_, shares_, 0, options_.how, options_.check_finite));
    // One end for all ranks, because they write at the same time.
    const SteadyTime until = writer_.clock_.now() + options_.reports_within;
    for (int rank = 1; rank < shares_.world_size(); ++rank) hear(rank, until);
    done_.digests = complete_image(file, snapshot_, plan_, shares_, pieces_, not_finite_, options_.how);
    done_.write = writer_.clock_.now() - began;
  }

  // If the message cannot be sent, the save has ended all the same.
  void end(EndMessage::Kind kind, const std::string& text, std::uint64_t bytes = 0) noexcept {
    const std::string failure = failure_of([&] {
      writer_.tell(tag_.number, begun_ ? kEnd : kFirst, to_text(tag_, EndMessage{kind, bytes, text}));
    });
    if (failure.empty()) return;
    log_warning("the other ranks could not be told how the save of step {} ended ({}): {}", snapshot_.step,
                text, failure);
  }

  // Makes sure that the reason names a rank.
  void fail(const std::string_view reason) noexcept {
    end(EndMessage::Kind::failed, text_or_out_of_memory([&] {
          return (reason.starts_with("rank ") ? "" : "rank 0: ") + std::string(reason);
        }));
  }

  SharedCommit done(CheckpointInfo checkpoint) {
    done_.checkpoint = std::move(checkpoint);
    return std::move(done_);
  }

 private:
  void take(int rank, const WrittenShare& written) {
    const Share& share = shares_.ranks[static_cast<std::size_t>(rank)];
    for (std::size_t i = 0; i < share.pieces.size(); ++i) pieces_[share.pieces[i]] = written.digests[i];
    if (!not_finite_) not_finite_ = written.not_finite;
  }

  void hear(int rank, SteadyTime until) {
    std::string text;
    const Duration left = time_until(until, writer_.clock_.now());
    const std::string silent =
        failure_of([&] { text = writer_.hear(rank, tag_.number, kReport, left, options_.patience); });
    if (!silent.empty()) throw RankError(rank, "did not report its share of the checkpoint: " + silent);
    const Share& share = shares_.ranks[static_cast<std::size_t>(rank)];
    const auto report = internal::read_report(tag_, rank, share, text);
    // The number comes from another process and is used as an index.
    if (!report || report->not_finite.value_or(0) >= snapshot_.layout->tensors().size())
      throw RankError(rank, "sent another message than the report of this save");
    if (!report->failure.empty()) {
      throw RankError(rank, "could not write its share: " + report->failure, report->refused);
    }
    put_sent(snapshot_, share, report->sent);
    take(rank, {report->digests, report->not_finite});
  }

  SharedWriter& writer_;
  const Shares& shares_;
  const FilePlan& plan_;
  Snapshot& snapshot_;
  const SharedWriteOptions& options_;
  const SaveTag tag_;
  bool begun_ = false;
  std::optional<std::size_t> not_finite_;  // index of a tensor
  std::vector<Digest> pieces_;
  SharedCommit done_;
};

SharedCommit SharedWriter::commit(CheckpointStore& store, const SharedSave& save, Snapshot& snapshot,
                                  Ancestry ancestry, const SharedWriteOptions& options) {
  Leader leader(*this, begin_save(save.number), save, snapshot, options);
  CheckpointInfo checkpoint;
  try {
    // A late copy must be complete before any byte of the image is hashed.
    snapshot.wait_for_arrival();
    checkpoint = store.commit({.step = snapshot.step,
                               .bytes = save.plan->layout->length(),
                               .ancestry = std::move(ancestry),
                               .write = [&](File& file) { leader.write(file); },
                               .opened = [&](const std::string& name) { leader.begin(name); }});
  } catch (const SupersededError& error) {
    leader.end(EndMessage::Kind::superseded, what_of(error));
    throw;
  } catch (const std::exception& error) {
    leader.fail(what_of(error));
    throw;
  } catch (...) {
    leader.fail("an exception of unknown type");
    throw;
  }
  // Only after the acknowledgement: by this message the others report success (rule 9).
  leader.end(EndMessage::Kind::committed, checkpoint.name, checkpoint.bytes);
  return leader.done(std::move(checkpoint));
}

CheckpointInfo LedSave::commit(CheckpointStore& store, Snapshot& snapshot, Ancestry ancestry,
                               ImageWriterOptions how, Duration& wrote) {
  SharedWriteOptions options = limits_;
  options.how = std::move(how);
  SharedCommit done = writer_.commit(store, save_, snapshot, std::move(ancestry), options);
  wrote = done.write;
  return std::move(done.checkpoint);
}

void LedSave::log_alone_from_here(const OtherRankError& why) const noexcept {
  log_warning("from here on rank 0 writes the checkpoints of this attempt alone: {}", what_of(why));
}

SharedOutcome SharedWriter::take_part(FileSystem& files, const std::filesystem::path& run,
                                      const SharedSave& save, const Snapshot& snapshot,
                                      const SharedWriteOptions& options) {
  const SaveTag tag{attempt_, begin_save(save.number), snapshot.step};
  Duration took{};
  SharedOutcome outcome = after_first(tag, options, [&](const std::string& begin) {
    return report(files, run, save, snapshot, options, tag, begin, took);
  });
  outcome.write = took;
  return outcome;
}

SharedOutcome SharedWriter::stand_aside(std::int64_t step, const std::string& reason, std::uint64_t number,
                                        const SharedWriteOptions& options) {
  const SaveTag tag{attempt_, begin_save(number), step};
  return after_first(tag, options,
                     [&](const std::string&) { return to_refusal(tag, channel_.rank(), reason); });
}

// The side of a rank other than 0, from rank 0's first text: its report, and rank 0's last text.
SharedOutcome SharedWriter::after_first(const SaveTag& tag, const SharedWriteOptions& options,
                                        const std::function<std::string(const std::string&)>& report) {
  SharedOutcome outcome;
  std::string first;
  const std::string silent =
      failure_of([&] { first = hear(0, tag.number, kFirst, options.begin_within, options.patience); });
  if (!silent.empty()) {
    // Nothing was opened, and without this rank's report rank 0 cannot commit.
    outcome.kind = SharedOutcome::Kind::failed;
    outcome.reason = "rank 0 did not begin to write: " + silent;
    failure_of([&] { tell(tag.number, kReport, to_refusal(tag, channel_.rank(), outcome.reason)); });
    return outcome;
  }
  if (const auto end = internal::read_end(tag, first)) return outcome_of(*end);

  const std::string text = report(first);
  std::string last;
  const std::string lost = failure_of([&] {
    tell(tag.number, kReport, text);
    last = hear(0, tag.number, kEnd, options.reports_within + options.end_within, options.patience);
  });
  if (const auto end = lost.empty() ? internal::read_end(tag, last) : std::nullopt) return outcome_of(*end);
  outcome.reason = "rank 0 did not say how the save of step " + std::to_string(tag.step) +
                   " ended; the next start finds out: " + (lost.empty() ? "it sent another message" : lost);
  return outcome;
}

// The file is closed when this returns, also after an exception: rank 0 may rename it afterwards.
std::string SharedWriter::report(FileSystem& files, const std::filesystem::path& run, const SharedSave& save,
                                 const Snapshot& snapshot, const SharedWriteOptions& options,
                                 const SaveTag& tag, const std::string& begin, Duration& took) {
  const int rank = channel_.rank();
  const SteadyTime began = clock_.now();
  ReportMessage report;
  report.failure = failure_of([&] {
    const auto message = internal::read_begin(tag, begin);
    if (!message) throw Error("rank 0 sent a message that does not begin this save");
    // By another plan this rank would write over bytes of the others.
    if (message->fingerprint != save.shares->fingerprint) {
      throw Error(
          "it plans another file than rank 0: the ranks train different states, or with different versions "
          "of this program or of libhdf5");
    }
    // As on rank 0: a late copy must be complete before its bytes are hashed.
    snapshot.wait_for_arrival();
    const Share& share = save.shares->ranks[static_cast<std::size_t>(rank)];
    WrittenShare written;
    if (share.writes.empty()) {
      written = hash_share(snapshot, *save.shares, rank, options.how, options.check_finite);
    } else {
      const auto file = open_announced(files, run, message->temporary, clock_);
      written = write_share(*file, snapshot, *save.shares, rank, options.how, options.check_finite);
      // Before the report: rank 0 acknowledges for all, so this rank's bytes must be on the device (rule
      // 13).
      file->sync();
      file->close();
    }
    report.not_finite = written.not_finite;
    report.digests = std::move(written.digests);
    report.sent = bytes_to_send(snapshot, share);
  });
  took = clock_.now() - began;
  return to_text(tag, rank, report);
}

void SharedWriter::decline(std::int64_t step, const std::string& reason, std::uint64_t number) noexcept {
  const std::string failure = failure_of([&] {
    const SaveTag tag{attempt_, begin_save(number), step};
    if (channel_.rank() == 0) {
      tell(tag.number, kFirst,
           to_text(tag, EndMessage{EndMessage::Kind::failed, 0, "rank 0 could not save: " + reason}));
    } else {
      tell(tag.number, kReport, to_refusal(tag, channel_.rank(), reason));
    }
  });
  if (failure.empty()) return;
  log_warning("the other ranks could not be told that this one does not save step {} ({}): {}", step, reason,
              failure);
}

void SharedWriter::alone(std::int64_t step, std::uint64_t number) {
  const SaveTag tag{attempt_, begin_save(number), step};
  tell(tag.number, kFirst, to_text(tag, EndMessage{EndMessage::Kind::alone, 0, "rank 0 writes it alone"}));
}

void SharedWriter::leave_out(std::int64_t step, std::uint64_t number) noexcept {
  const std::string failure = failure_of([&] { alone(step, number); });
  if (failure.empty()) return;
  log_warning("the other ranks could not be told that step {} is not saved now: {}", step, failure);
}

// Returns the save's number, and releases texts that no rank needs any more.
std::uint64_t SharedWriter::begin_save(std::uint64_t number) noexcept {
  std::vector<Told> old;
  {
    const MutexLock lock(mutex_);
    if (number == 0) number = begun_.back() + 1;
    if (number > begun_.back()) {
      std::rotate(begun_.begin(), begun_.begin() + 1, begun_.end());
      begun_.back() = number;
    }
    // Numbers may leave gaps of any size, and a rank that still writes its share reads of its save later.
    const auto wanted =
        std::partition(told_.begin(), told_.end(),
                       [third = begun_.front(), before = clock_.now() - kLongestWait](const Told& told) {
                         return told.number < third && told.at < before;
                       });
    // Without memory for the list the texts stay in the store until a later save.
    failure_of([&, begin = told_.begin()] { old.assign(begin, wanted); });
    if (!old.empty()) told_.erase(told_.begin(), wanted);
  }
  for (const Told& told : old) {
    const std::string failure = failure_of([&] { channel_.forget(told.name); });
    if (!failure.empty()) log_debug("a message stays in the store: {}", failure);
  }
  return number;
}

void SharedWriter::tell(std::uint64_t number, const char* message, const std::string& text) {
  std::string name = name_of(number, message);
  channel_.tell(name, text);
  const MutexLock lock(mutex_);
  told_.push_back({number, clock_.now(), std::move(name)});
}

std::string SharedWriter::hear(int rank, std::uint64_t number, const char* message, Duration limit,
                               const Patience* patience) {
  return hear_patiently(channel_, clock_, rank, name_of(number, message), limit, patience);
}

}}  // namespace holdfast::v0_2
