#include "holdfast/checkpoint/shared_write.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <string_view>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/text.h"
#include "holdfast/checkpoint/internal/share_message.h"
#include "holdfast/format/share_writer.h"

namespace holdfast::inline v1 {
namespace {

using internal::BeginMessage;
using internal::EndMessage;
using internal::ReportMessage;
using internal::SaveTag;

// The first word of rank 0 about a save: that it begins, or that it is over already.
constexpr char kFirst[] = "first";
constexpr char kReport[] = "report";
constexpr char kEnd[] = "end";

// A name that rank 0 has made may show late on a network file system.
constexpr Duration kShowsWithin = std::chrono::seconds(10);

// Runs `work`; what it throws as text, empty when nothing was thrown.
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

std::string to_report(const SaveTag& tag, int rank, const std::string& failure) {
  ReportMessage report;
  report.failure = failure;
  return to_text(tag, rank, report);
}

std::unique_ptr<File> open_announced(FileSystem& files, const std::filesystem::path& run,
                                     const std::string& name, Clock& clock) {
  const SteadyTime end = clock.now() + kShowsWithin;
  while (true) {
    // Opened anew each time: then NFS asks its server which names there are.
    const auto directory = files.open_directory(run, false);
    if (!directory) throw Error(run.native() + " is gone", ExitCode::io_failed);
    if (auto file = directory->open(name, OpenMode::overwrite_direct)) return file;
    if (clock.now() >= end) {
      throw Error(run.native() + "/" + name + " is not there: rank 0 has given the save up",
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
  }
  outcome.reason = end.text;
  return outcome;
}

[[noreturn]] void fail_because_of(int rank, const std::string& reason) {
  throw Error("rank " + std::to_string(rank) + ' ' + reason, ExitCode::io_failed);
}

}  // namespace

// One save on rank 0.
class SharedWriter::Leader {
 public:
  Leader(SharedWriter& writer, const SharedSave& save, Snapshot& snapshot, const SharedWriteOptions& options)
      : writer_(writer),
        shares_(*save.shares),
        plan_(*save.plan),
        snapshot_(snapshot),
        options_(options),
        tag_{writer.attempt_, writer.number_, snapshot.step} {}

  void begin(const std::string& temporary) {
    writer_.tell(kFirst, to_text(tag_, BeginMessage{shares_.fingerprint, temporary}));
    begun_ = true;
  }

  void write(File& file) {
    const SteadyTime began = writer_.clock_.now();
    pieces_.resize(shares_.pieces.size());
    take(0, write_share(file, snapshot_, shares_, 0, options_.how, options_.look));
    const SteadyTime until = writer_.clock_.now() + options_.reports_within;
    for (int rank = 1; rank < shares_.world_size(); ++rank) hear(rank, until);
    done_.digests = complete_image(file, snapshot_, plan_, shares_, pieces_, finite_, options_.how);
    done_.write = writer_.clock_.now() - began;
  }

  // Whatever becomes of the telling, the save has ended.
  void end(EndMessage::Kind kind, const std::string& text, std::uint64_t bytes = 0) noexcept {
    const std::string failure = failure_of([&] {
      writer_.tell(begun_ ? kEnd : kFirst, to_text(tag_, EndMessage{kind, bytes, text}));
    });
    if (failure.empty()) return;
    log_warning("the other ranks could not be told how the save of step {} ended ({}): {}", snapshot_.step,
                text, failure);
  }

  // The reason names the rank.
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
    finite_ = finite_ && written.finite;
  }

  void hear(int rank, SteadyTime until) {
    std::string text;
    const Duration left = std::max(until - writer_.clock_.now(), Duration::zero());
    const std::string silent =
        failure_of([&] { text = writer_.companions_.hear(rank, writer_.name_of(kReport), left); });
    if (!silent.empty()) fail_because_of(rank, "did not report its share of the checkpoint: " + silent);
    const Share& share = shares_.ranks[static_cast<std::size_t>(rank)];
    const auto report = internal::read_report(tag_, rank, share, text);
    if (!report) fail_because_of(rank, "answered with something else than a report of this save");
    if (!report->failure.empty()) fail_because_of(rank, "could not write its share: " + report->failure);
    put_sent(snapshot_, share, report->sent);
    take(rank, {report->digests, report->finite});
  }

  SharedWriter& writer_;
  const Shares& shares_;
  const FilePlan& plan_;
  Snapshot& snapshot_;
  const SharedWriteOptions& options_;
  const SaveTag tag_;
  bool begun_ = false;
  bool finite_ = true;
  std::vector<Digest> pieces_;
  SharedCommit done_;
};

SharedCommit SharedWriter::commit(CheckpointStore& store, const SharedSave& save, Snapshot& snapshot,
                                  Ancestry ancestry, const SharedWriteOptions& options) {
  next_save();
  Leader leader(*this, save, snapshot, options);
  CheckpointInfo checkpoint;
  try {
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
  leader.end(EndMessage::Kind::committed, checkpoint.name, checkpoint.bytes);
  return leader.done(std::move(checkpoint));
}

SharedOutcome SharedWriter::take_part(FileSystem& files, const std::filesystem::path& run,
                                      const SharedSave& save, const Snapshot& snapshot,
                                      const SharedWriteOptions& options) {
  next_save();
  const SaveTag tag{attempt_, number_, snapshot.step};
  SharedOutcome outcome;
  std::string first;
  const std::string silent =
      failure_of([&] { first = companions_.hear(0, name_of(kFirst), options.begin_within); });
  if (!silent.empty()) {
    // Nothing was opened, and without this rank's report nothing can be committed.
    outcome.kind = SharedOutcome::Kind::failed;
    outcome.reason = "rank 0 did not begin to write: " + silent;
    failure_of([&] { tell(kReport, to_report(tag, companions_.rank(), outcome.reason)); });
    return outcome;
  }
  if (const auto end = internal::read_end(tag, first)) return outcome_of(*end);

  Duration took{};
  const std::string text = report(files, run, save, snapshot, options, first, took);
  std::string last;
  const std::string lost = failure_of([&] {
    tell(kReport, text);
    last = companions_.hear(0, name_of(kEnd), options.reports_within + options.end_within);
  });
  const auto end = lost.empty() ? internal::read_end(tag, last) : std::nullopt;
  if (end) {
    outcome = outcome_of(*end);
  } else {
    outcome.reason =
        "rank 0 did not say how the save of step " + std::to_string(snapshot.step) +
        " ended; the next start finds out: " + (lost.empty() ? "it answered with something else" : lost);
  }
  outcome.write = took;
  return outcome;
}

// The file is closed when this returns, whatever happened.
std::string SharedWriter::report(FileSystem& files, const std::filesystem::path& run, const SharedSave& save,
                                 const Snapshot& snapshot, const SharedWriteOptions& options,
                                 const std::string& begin, Duration& took) {
  const SaveTag tag{attempt_, number_, snapshot.step};
  const int rank = companions_.rank();
  const SteadyTime began = clock_.now();
  ReportMessage report;
  report.failure = failure_of([&] {
    const auto message = internal::read_begin(tag, begin);
    if (!message) throw Error("rank 0 said something else than that this save begins");
    if (message->fingerprint != save.shares->fingerprint) {
      throw Error(
          "it plans another file than rank 0: the ranks train different states, or with different versions "
          "of this program or of libhdf5");
    }
    snapshot.wait_for_arrival();
    const Share& share = save.shares->ranks[static_cast<std::size_t>(rank)];
    WrittenShare written;
    if (share.writes.empty()) {
      written = hash_share(snapshot, *save.shares, rank, options.how.threads, options.look);
    } else {
      const auto file = open_announced(files, run, message->temporary, clock_);
      written = write_share(*file, snapshot, *save.shares, rank, options.how, options.look);
      file->sync();
      file->close();
    }
    report.finite = written.finite;
    report.digests = std::move(written.digests);
    report.sent = bytes_to_send(snapshot, share);
  });
  took = clock_.now() - began;
  return to_text(tag, rank, report);
}

void SharedWriter::decline(std::int64_t step, const std::string& reason) noexcept {
  next_save();
  const std::string failure = failure_of([&] {
    const SaveTag tag{attempt_, number_, step};
    if (companions_.rank() == 0) {
      tell(kFirst, to_text(tag, EndMessage{EndMessage::Kind::failed, 0, "rank 0 could not save: " + reason}));
    } else {
      tell(kReport, to_report(tag, companions_.rank(), reason));
    }
  });
  if (failure.empty()) return;
  log_warning("the other ranks could not be told that this one does not save step {} ({}): {}", step, reason,
              failure);
}

// All ranks are through with the last save: nobody wants its messages any more.
void SharedWriter::next_save() noexcept {
  ++number_;
  for (const std::string& name : told_) {
    const std::string failure = failure_of([&] { companions_.forget(name); });
    if (!failure.empty()) log_debug("a message stays in the store: {}", failure);
  }
  told_.clear();
}

std::string SharedWriter::name_of(const char* message) const {
  return "save/" + std::to_string(number_) + '/' + message;
}

void SharedWriter::tell(const std::string& message, const std::string& text) {
  const std::string name = name_of(message.c_str());
  told_.push_back(name);
  companions_.tell(name, text);
}

}  // namespace holdfast::inline v1
