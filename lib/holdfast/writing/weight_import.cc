#include "holdfast/writing/weight_import.h"

#include <algorithm>

#include "holdfast/base/error.h"
#include "holdfast/base/text.h"
#include "holdfast/base/utf8.h"
#include "holdfast/format/image_writer.h"
#include "holdfast/staging/run_record.h"
#include "holdfast/store/attempt.h"
#include "holdfast/writing/file_verifier.h"

namespace holdfast { inline namespace v0_2 {

void check_import_directory(FileSystem& file_system, const std::filesystem::path& path) {
  const auto directory = file_system.open_directory(path, false);
  if (directory == nullptr) return;
  for (const DirectoryEntry& entry : directory->list()) {
    if (entry.name == "lost+found") continue;  // of a new file system
    throw UsageError(printable(path.string(), 4096) +
                     ": it is not empty, and an import needs a run directory of its own");
  }
}

CheckpointInfo import_weights(FileSystem& file_system, Clock& clock, const std::filesystem::path& directory,
                              const Snapshot& weights, const std::string& source) {
  WholeState state{
      .step = 0, .tensors = weights.layout->tensors(), .bytes = {}, .attributes = weights.attributes};
  for (std::size_t i = 0; i < state.tensors.size(); ++i) state.bytes.push_back(weights.bytes(i));
  return import_state(file_system, clock, directory, state, source);
}

CheckpointInfo import_state(FileSystem& file_system, Clock& clock, const std::filesystem::path& directory,
                            const WholeState& state, const std::string& source) {
  check_import_directory(file_system, directory);
  Attributes attributes = state.attributes;
  attributes.set("step", state.step);
  attributes.set("import.source", printable(source, 4096), Role::record);
  RunRecord record{.attempt = 1,
                   .ancestry = {},
                   .loss = {},
                   .finite = false,  // longer than "true"
                   .overrides = {},
                   .grown_from = {},
                   .time = format_utc(clock.wall_now()),
                   .host = {},
                   .metrics = {}};
  // Only for the size of the attributes: the attempt's number is not known yet.
  put_run_record(attributes, record);

  const auto& tensors = state.tensors;
  const auto plan = make_file_plan(tensors, attribute_capacity_for(attributes, tensors));
  Snapshot snapshot;
  snapshot.step = state.step;
  snapshot.layout = plan->layout;
  snapshot.arena = make_image(*plan);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto bytes = state.bytes[i];
    std::copy(bytes.begin(), bytes.end(), plan->layout->slot(i, snapshot.arena->bytes()).begin());
  }
  FileVerifier verifier;
  // Every byte is read back, because no older checkpoint stands behind this one.
  CheckpointStore store(file_system, clock, {.directory = directory, .read_back = ReadBack::all}, verifier);
  // For its refusals alone: an empty directory has nothing to select.
  static_cast<void>(store.preflight());
  record.attempt = store.claim(kClaimedByImport);
  static_cast<void>(store.recover());
  // A volume that cannot commit shows before the large file is written.
  store.trial_commit();
  put_run_record(attributes, record);
  snapshot.attributes = attributes;
  ImageWriterOptions how;
  how.before_seal = [](Snapshot& sealed, std::optional<std::size_t> not_finite) {
    sealed.attributes.set(kRunFinite, !not_finite, Role::record);
  };
  return store.commit(
      {.step = state.step, .bytes = plan->layout->length(), .ancestry = {}, .write = [&](File& file) {
         write_image(file, snapshot, *plan, how);
       }});
}

}}  // namespace holdfast::v0_2
