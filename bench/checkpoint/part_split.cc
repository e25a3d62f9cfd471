// What staging a save is made of: attributes, descriptions of the tensors, the copies. On a GPU also its question for free
// memory, the launches that the training thread makes, and copies into page-locked and into ordinary memory.
#include <ATen/Context.h>

#include <memory>
#include <utility>

#include "holdfast/format/file_plan.h"
#include "ours.h"
#include "parts.h"
#include "statistics.h"

#ifdef HOLDFAST_WITH_CUDA
#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime_api.h>
#endif

namespace holdfast::bench {
namespace {

double seconds_of(const auto& work) {
  const double begin = now();
  work();
  return now() - begin;
}

void wait_for_gpu(bool gpu) {
#ifdef HOLDFAST_WITH_CUDA
  if (gpu) c10::cuda::device_synchronize();
#else
  static_cast<void>(gpu);
#endif
}

Row row_of(const char* key, const char* what, std::vector<double> samples) {
  const double middle = median(samples);
  return {.key = std::string("split.") + key,
          .what = what,
          .value = middle,
          .text = milliseconds(middle),
          .samples = std::move(samples)};
}

// Of one image, ordinary or page-locked.
struct Copies {
  std::vector<double> launch, arrive;
};

Copies copies_of(TrainingState& state, const FilePlan& plan, int repetitions, bool locked, bool gpu) {
  const auto image = make_image(plan);
  const PrepareImage lock = state.source().image_preparation();
  const std::shared_ptr<void> pages = locked && lock ? lock(image->bytes()) : nullptr;
  Copies found;
  for (int i = -2; i < repetitions; ++i) {  // the first ones fault pages in
    state.source().describe();              // what a copy requires
    wait_for_gpu(gpu);
    std::unique_ptr<LateCopy> copy;
    const double launch =
        seconds_of([&] { copy = state.source().prepare_late(*plan.layout, image->bytes()); });
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
    Copies copies = copies_of(state, *plan, bench.options.repetitions, locked, gpu);
    section.rows.push_back(row_of(locked ? "launch.locked" : "launch",
                                  locked ? "copies begun, page-locked" : "copies begun",
                                  std::move(copies.launch)));
    section.rows.push_back(row_of(locked ? "copies.locked" : "copies",
                                  locked ? "copies ended, page-locked" : "copies ended",
                                  std::move(copies.arrive)));
  }
  bench.report.add(std::move(section));
}

}  // namespace holdfast::bench
