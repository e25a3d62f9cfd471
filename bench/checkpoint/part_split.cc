// What staging a save is made of: attributes, descriptions of the tensors, the copies; and what blocks the training
// thread in a loop with before_update(), with a forward and backward pass between. On a GPU also its question for free
// memory, the launches that the training thread makes, and copies into page-locked and into ordinary memory.
#include <ATen/Context.h>

#include <iterator>
#include <memory>
#include <utility>

#include "holdfast/format/file_plan.h"
#include "holdfast/staging/late_stager.h"
#include "ours.h"
#include "parts.h"
#include "statistics.h"

#ifdef HOLDFAST_WITH_CUDA
#include <cuda_runtime_api.h>
#endif

namespace holdfast::bench {
namespace {

double seconds_of(const auto& work) {
  const double begin = now();
  work();
  return now() - begin;
}

// nullptr where images need no page-locking.
std::shared_ptr<void> locked_pages(TrainingState& state, Arena& image) {
  const PrepareImage lock = state.source().traits().prepare_image;
  return lock ? lock(image.bytes()) : nullptr;
}

Row row_of(const char* key, const char* what, std::vector<double> samples) {
  const double middle = median(samples);
  return {.key = std::string("split.") + key,
          .what = what,
          .value = middle,
          .text = milliseconds(middle),
          .samples = samples,
          .interval = interval_of_median(samples),
          .shown_times = 1000};
}

// Of one image, ordinary or page-locked.
struct Copies {
  std::vector<double> launch, arrive;
};

Copies copies_of(TrainingState& state, const FilePlan& plan, int repetitions, bool locked) {
  const auto image = make_image(plan);
  const std::shared_ptr<void> pages = locked ? locked_pages(state, *image) : nullptr;
  Copies found;
  for (int i = -2; i < repetitions; ++i) {  // the first ones fault pages in
    state.source().describe();              // what a copy requires
    state.wait_for_device();
    std::unique_ptr<LateCopy> copy;
    const double launch =
        seconds_of([&] { copy = state.source().copy(*plan.layout, image->bytes(), Part::late); });
    const double arrive = seconds_of([&] {
      copy->run();
      copy->arrive();
    });
    if (i < 0) continue;
    found.launch.push_back(launch);
    found.arrive.push_back(arrive);
  }
  return found;
}

// The steps of a save in the order in which the training thread makes them, each beside real training, because a
// forward and backward pass leaves cold caches. `whole`: of a Checkpointer in the same run.
void add_blocked(Bench& bench, TrainingState& state, const FilePlan& plan, Section& section) {
  Ours ours(state, bench.scratch.path() / ("split-" + section.state));
  const auto image = make_image(plan);
  const std::shared_ptr<void> pages = locked_pages(state, *image);
  Snapshot snapshot;
  snapshot.layout = plan.layout;
  snapshot.arena = image;
  internal::LateStager stager;
  std::vector<double> list, attributes, describe, early, prepare, wake, wait, compare, whole, rest;
  for (int i = -1; i < bench.options.repetitions; ++i) {
    bench.progress("blocked, " + section.state, i, bench.options.repetitions);
    state.forward_backward();
    std::unique_ptr<LateCopy> copy;
    double seconds[8];
    std::shared_ptr<const void> held;
    seconds[0] = seconds_of([&] { held = state.source().hold(Hold::list); });
    seconds[1] = seconds_of([&] { state.source().attributes(); });
    seconds[2] = seconds_of([&] { state.source().describe(); });
    seconds[3] = seconds_of([&] { state.source().copy(*plan.layout, image->bytes(), Part::early); });
    seconds[4] = seconds_of([&] { copy = state.source().copy(*plan.layout, image->bytes(), Part::late); });
    held.reset();
    seconds[5] = seconds_of([&] { stager.begin(std::move(copy), std::make_shared<PieceDigests>(snapshot)); });
    state.forward_backward();
    seconds[6] = seconds_of([&] { copy = stager.take(); });
    seconds[7] = seconds_of([&] { static_cast<void>(copy->changed_samples()); });
    const double all = ours.save_beside_training().blocked;
    if (i < 0) continue;
    std::vector<double>* const lists[] = {&list,    &attributes, &describe, &early,
                                          &prepare, &wake,       &wait,     &compare};
    double sum = 0;
    for (std::size_t k = 0; k < std::size(lists); ++k) {
      lists[k]->push_back(seconds[k]);
      sum += seconds[k];
    }
    whole.push_back(all);
    rest.push_back(all - sum);
  }
  section.rows.push_back(
      row_of("blocked", "training thread blocked by a save with before_update()", std::move(whole)));
  section.rows.push_back(row_of("blocked.list", "… list of the tensors", std::move(list)));
  section.rows.push_back(row_of("blocked.attributes", "… attributes", std::move(attributes)));
  section.rows.push_back(row_of("blocked.describe", "… descriptions of the tensors", std::move(describe)));
  section.rows.push_back(row_of("blocked.early", "… copies of buffers and random streams", std::move(early)));
  section.rows.push_back(
      row_of("blocked.prepare", "… the late copies, and samples of them", std::move(prepare)));
  section.rows.push_back(row_of("blocked.wake", "… waking the thread that copies", std::move(wake)));
  section.rows.push_back(row_of("blocked.wait", "… waiting for what is left of the copy", std::move(wait)));
  section.rows.push_back(row_of("blocked.compare", "… comparing the samples", std::move(compare)));
  section.rows.push_back(
      row_of("blocked.rest", "… the rest: plan, ledger, waking the writer", std::move(rest)));
}

}  // namespace

void measure_split(Bench& bench, const StateSpec& spec) {
  const bool gpu = at::hasCUDA();
  bench.progress("split, " + spec.name, 0, 1);
  TrainingState state(spec, {.device = gpu ? at::Device(at::kCUDA, 0) : at::Device(at::kCPU)});
  state.drop_gradients();
  const Attributes attributes = state.source().attributes();
  const std::vector<TensorSpec> tensors = state.source().describe();
  const std::shared_ptr<const FilePlan> plan =
      make_file_plan(tensors, attribute_capacity_for(attributes, tensors));

  Section section{.part = "split",
                  .state = spec.name,
                  .title = spec.name + (gpu ? " on the GPU" : "") + ": what staging is made of",
                  .rows = {}};
  std::vector<double> encode, describe, free_memory;
  for (int i = 0; i < bench.options.repetitions; ++i) {
    encode.push_back(seconds_of([&] { state.source().attributes(); }));
    describe.push_back(seconds_of([&] { state.source().describe(); }));
#ifdef HOLDFAST_WITH_CUDA
    std::size_t free = 0, total = 0;
    if (gpu) free_memory.push_back(seconds_of([&] { static_cast<void>(cudaMemGetInfo(&free, &total)); }));
#endif
  }
  section.rows.push_back(row_of("attributes", "attributes", std::move(encode)));
  section.rows.push_back(row_of("describe", "descriptions of the tensors", std::move(describe)));
  if (gpu)
    section.rows.push_back(row_of("free_memory", "asking the GPU for free memory", std::move(free_memory)));
  for (const bool locked : {true, false}) {
    if (locked && !gpu) continue;
    Copies copies = copies_of(state, *plan, bench.options.repetitions, locked);
    section.rows.push_back(row_of(locked ? "launch.locked" : "launch",
                                  locked ? "copies begun, page-locked" : "copies begun",
                                  std::move(copies.launch)));
    section.rows.push_back(row_of(locked ? "copies.locked" : "copies",
                                  locked ? "copies ended, page-locked" : "copies ended",
                                  std::move(copies.arrive)));
  }
  add_blocked(bench, state, *plan, section);
  bench.report.add(std::move(section));
}

}  // namespace holdfast::bench
