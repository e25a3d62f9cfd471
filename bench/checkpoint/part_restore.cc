// A verified restore against a raw O_DIRECT read of as many bytes.
#include <algorithm>
#include <functional>
#include <optional>
#include <random>
#include <utility>
#include <variant>

#include "ceiling.h"
#include "holdfast/base/error.h"
#include "holdfast/snapshot/arena.h"
#include "holdfast/writing/file_verifier.h"
#include "ours.h"
#include "parts.h"
#include "statistics.h"

namespace holdfast::bench {
namespace {

double restore(const std::filesystem::path& checkpoint) {
  drop_cached(checkpoint);
  const double begin = now();
  FileVerifier verifier;
  const auto file = FileSystem::real().open_file(checkpoint, OpenMode::read);
  const auto loaded = verifier.load(*file);
  const double seconds = now() - begin;
  if (const auto* damaged = std::get_if<Rejection>(&loaded)) throw Error(damaged->reason);
  return seconds;
}

// A virtual machine may get memory from its host only when it first touches it, which can take longer than to read the
// file. That would be the bench's luck, so as much as all rivals need is touched before.
void touch_memory(std::uint64_t bytes) {
  Arena memory(bytes);
  for (std::uint64_t at = 0; at < bytes; at += 4096) memory.bytes()[at] = std::byte{1};
}

}  // namespace

void measure_restore(Bench& bench, const StateSpec& spec) {
  TrainingState state(spec);
  require_room(bench.scratch.path(), 6 * state.bytes() + (16u << 20), "the restore part with " + spec.name);
  const auto directory = bench.scratch.path() / ("restore-" + spec.name);
  std::filesystem::path checkpoint;
  std::uint64_t bytes = 0;
  {
    Ours ours(state, directory);
    ours.save();
    checkpoint = ours.newest();
    bytes = ours.file_bytes();
  }
  Ceiling ceiling(bench.scratch.folder("raw-restore-" + spec.name), bytes);
  ceiling.choose_threads(bench.options.quick ? 1 : 3);

  touch_memory(4 * bytes);

  std::vector<double> raw;
  std::vector<double> raw_new;
  std::vector<double> verified;
  std::vector<double> resumed;
  const auto resume = [&] {
    drop_cached(checkpoint);
    const double begin = now();
    Checkpointer attempt(state.source(),
                         {.directory = directory, .every = {}, .notices = {.hear_signals = false}});
    attempt.resume();
    return now() - begin;
  };
  std::vector<std::pair<std::vector<double>*, std::function<double()>>> rivals = {
      {&raw, [&] { return ceiling.read(); }},
      {&raw_new, [&] { return ceiling.read_into_new_memory(); }},
      {&verified, [&] { return restore(checkpoint); }},
      {&resumed, resume}};
  std::minstd_rand lots(1);
  for (int repetition = -1; repetition < bench.options.repetitions; ++repetition) {
    bench.progress("restore, " + spec.name, repetition, bench.options.repetitions);
    // A volume that lends some speed for a moment lends it to whoever comes first.
    std::shuffle(rivals.begin(), rivals.end(), lots);
    settle(bench.scratch.path());
    for (const auto& [times, run] : rivals) {
      const double seconds = run();
      if (repetition >= 0) times->push_back(seconds);
    }
  }
  const double best = median(raw);
  const auto size = static_cast<double>(bytes);
  Section section{.part = "restore",
                  .state = spec.name,
                  .title = spec.name + ", " + state.words() + ": restore, page cache empty",
                  .rows = {}};
  const auto add = [&](const char* key, const char* what, const std::vector<double>& samples,
                       std::string note) -> Row& {
    section.rows.push_back(share_of_ceiling(key, what, samples, size, best));
    section.rows.back().note = std::move(note);
    section.rows.back().interval = interval_of_ratio(raw, samples);
    return section.rows.back();
  };
  Row& reference = add("restore.ceiling", ceiling.direct() ? "raw O_DIRECT read" : "raw read, buffered", raw,
                       "8 MiB blocks by " + std::to_string(ceiling.read_threads()) +
                           " threads into memory that is already there");
  reference.of = "(the ceiling)";
  reference.interval.reset();
  add("restore.ceiling_new", "the same into new memory", raw_new,
      "its pages are made while it is read, as in every restore");
  add("restore.verified", "Holdfast, every byte verified", verified,
      "FileVerifier::load: open, index, all tensors into a new image")
      .goal = Goal{Goal::Kind::at_least, 0.90};
  add("restore.resume", "Checkpointer::resume, until the tensors hold it", resumed,
      "recovery and the claim included")
      .goal = Goal{Goal::Kind::at_least, 0.80};
  bench.report.add(std::move(section));
}

}  // namespace holdfast::bench
