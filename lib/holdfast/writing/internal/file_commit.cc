#include "holdfast/writing/internal/file_commit.h"

#include <exception>
#include <optional>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/format/image_writer.h"
#include "holdfast/staging/run_record.h"
#include "holdfast/writing/internal/finite_note.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

bool written_by_all(const WriteRequest& request) { return request.others && request.others->writers() > 1; }

// What the other ranks must know before the write. If something fails here, they are told too.
Snapshot seal(const WriteRequest& request, bool others_failed) {
  const auto& others = request.others;
  try {
    if (written_by_all(request) && others_failed) throw Error("another rank has failed in the save before");
    Snapshot sealed = *request.snapshot;  // shares the image, but has its own attributes
    if (others && others->writers() == 1) others->begin_alone();
    return sealed;
  } catch (const std::exception& error) {
    if (others) others->decline(what_of(error));
    throw;
  }
}

}  // namespace

CheckpointInfo FileCommit::commit(const WriteRequest& request, bool others_failed,
                                  SaveHandle::Shared& handle) {
  Snapshot sealed = seal(request, others_failed);
  // A shared save waits for the image itself, so that the other ranks learn of a failure there.
  if (!written_by_all(request)) request.snapshot->wait_for_arrival();
  if (request.complete) request.complete();
  const SteadyTime began = clock_.now();
  if (options_.before != nullptr) options_.before->begin();
  const bool slowed = options_.write_limit > 0 && !limit_lifted_.load(std::memory_order_relaxed);
  Duration wrote{};
  CheckpointInfo checkpoint = write(request, sealed, wrote);
  const Duration took = clock_.now() - began;
  // Plans are made from these costs: what a limit slowed down, or what is no usual save, would mislead them.
  if (options_.costs != nullptr && !slowed && request.usual) options_.costs->committed(request.copied + took);
  handle.written(began, checkpoint.bytes, wrote, took - wrote);
  return checkpoint;
}

CheckpointInfo FileCommit::write(const WriteRequest& request, Snapshot& sealed, Duration& wrote) {
  // From the attempt's number on, so that short attempts do not all hash the same pieces again.
  if (!round_) round_ = static_cast<std::uint64_t>(store_.attempt());
  ImageWriterOptions how{.threads = options_.threads,
                         .write_limit = options_.write_limit,
                         .clock = &clock_,
                         .limit_lifted = &limit_lifted_,
                         .recheck = {.round = (*round_)++}};
  // If run.finite is false already, the loss was not finite, and that was logged.
  const bool finite = sealed.attributes.get_bool(kRunFinite);
  how.before_seal = [this, finite](Snapshot& snapshot, std::optional<std::size_t> not_finite) {
    if (options_.before != nullptr) options_.before->wait();
    if (!finite) return;
    snapshot.attributes.set(kRunFinite, !not_finite, Role::record);
    note_finite(snapshot, not_finite, was_finite_);
  };
  if (written_by_all(request)) {
    how.write_limit /= request.others->writers();  // the limit is the volume's, and all ranks write to it
    return request.others->commit(store_, sealed, request.ancestry, std::move(how), wrote);
  }
  return store_.commit({.step = sealed.step,
                        .bytes = request.plan->layout->length(),
                        .ancestry = request.ancestry,
                        .write = [&](File& file) {
                          const SteadyTime start = clock_.now();
                          write_image(file, sealed, *request.plan, how);
                          wrote = clock_.now() - start;
                        }});
}

}}}  // namespace holdfast::v0_2::internal
