// How fast pictures become batches: the augmentation kernel on one core, the whole loader with 0, 1 and 2
// workers, pictures that live on the device (the GPU where there is one), and the ceiling, a memcpy of as
// many bytes as a batch has. Medians of interleaved repetitions.
//
//   bench_loader [--pictures N] [--batch N] [--repetitions N]
#include "holdfast/data/loader.h"

#include <ATen/core/Tensor.h>
#include <torch/cuda.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "holdfast/data/pictures.h"
#include "holdfast/data/resident_pictures.h"
#include "holdfast/data/synthetic.h"
#include "shared/median.h"

namespace {

using holdfast::bench::median;

constexpr double kGoal = 300'000;  // augmented, normalised float32 pictures/s on one core

struct Case {
  std::string name;
  int cores;
  std::function<std::int64_t()> run;  // returns the pictures made
  std::vector<double> rates{};
};

double seconds_of(const std::function<std::int64_t()>& run, std::int64_t& pictures) {
  const auto begin = std::chrono::steady_clock::now();
  pictures = run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Pictures per second of augmentation and loader");
  std::int64_t pictures = 50'000;
  std::int64_t batch = 128;
  int repetitions = 9;
  app.add_option("--pictures", pictures, "size of the data set")->check(CLI::Range(1'000, 10'000'000));
  app.add_option("--batch", batch, "pictures of a batch")->check(CLI::Range(1, 1'000));
  app.add_option("--repetitions", repetitions, "of each case")->check(CLI::Range(9, 1'000));
  CLI11_PARSE(app, argc, argv);

  const holdfast::PictureSet set = holdfast::synthetic_pictures(pictures).train;
  const std::int64_t values = set.shape().bytes();
  const holdfast::AugmentOptions augmentation;
  const holdfast::NormalizeTable table(augmentation);
  // Four batches in turn, as a loader with two workers keeps them.
  std::vector<float> out(static_cast<std::size_t>(4 * batch * values));
  const std::vector<float> source(static_cast<std::size_t>(4 * batch * values), 1.0F);
  const auto place = [&](std::int64_t i) { return (i % (4 * batch)) * values; };

  std::vector<Case> cases;
  cases.push_back({"memcpy of the batch's bytes", 1, [&] {
                     for (std::int64_t i = 0; i < pictures; ++i) {
                       std::memcpy(out.data() + place(i), source.data() + place(i + 1),
                                   static_cast<std::size_t>(values) * sizeof(float));
                     }
                     return pictures;
                   }});
  cases.push_back({"kernel, in the data's order", 1, [&] {
                     for (std::int64_t i = 0; i < pictures; ++i) {
                       const auto choice = holdfast::choose_augmentation(augmentation, 1, 0, i);
                       holdfast::augment_picture(set.pixels(i), set.shape(), augmentation.padding, choice,
                                                 table, out.data() + place(i));
                     }
                     return pictures;
                   }});
  std::vector<holdfast::Loader> loaders;
  loaders.reserve(4);
  for (const int workers : {0, 1, 2}) {
    auto& loader =
        loaders.emplace_back(holdfast::PictureDataset(holdfast::synthetic_pictures(pictures).train, {}),
                             holdfast::LoaderOptions{.batch_size = batch, .workers = workers});
    cases.push_back({"loader, " + std::to_string(workers) + (workers == 1 ? " worker" : " workers"),
                     std::max(1, workers), [&loader, batch] {
                       std::int64_t made = 0;
                       for (std::int64_t i = loader.batches_per_epoch(); i > 0; --i)
                         made += loader.next() ? batch : 0;
                       return made;
                     }});
  }
  const at::Device device(torch::cuda::is_available() ? at::kCUDA : at::kCPU);
  auto& resident = loaders.emplace_back(
      holdfast::ResidentPictures(holdfast::synthetic_pictures(pictures).train, {}, {.device = device}),
      holdfast::LoaderOptions{.batch_size = batch, .workers = 1, .pin_memory = device.is_cuda()});
  cases.push_back({"loader, pictures on " + device.str(), 2, [&resident, batch] {
                     std::optional<holdfast::Batch> last;
                     std::int64_t made = 0;
                     for (std::int64_t i = resident.batches_per_epoch(); i > 0; --i, made += batch) {
                       last = resident.next();
                     }
                     last->targets[0].item();  // waits for the device
                     return made;
                   }});

  for (int repetition = -1; repetition < repetitions; ++repetition) {  // the first warms up
    for (Case& one : cases) {
      std::int64_t made = 0;
      const double seconds = seconds_of(one.run, made);
      if (repetition >= 0) one.rates.push_back(static_cast<double>(made) / seconds);
    }
  }

  const double ceiling = median(cases.front().rates);
  std::printf("%lld pictures of 3x32x32, batch %lld, median of %d, %u cores\n\n",
              static_cast<long long>(pictures), static_cast<long long>(batch), repetitions,
              std::thread::hardware_concurrency());
  std::printf("%-30s %14s %16s %12s\n", "", "pictures/s", "pictures/s/core", "of memcpy");
  for (const Case& one : cases) {
    const double rate = median(one.rates);
    std::printf("%-30s %14.0f %16.0f %11.0f%%\n", one.name.c_str(), rate, rate / one.cores,
                100 * rate / one.cores / ceiling);
  }
  const double whole = median(cases[2].rates);
  const bool met = whole >= kGoal;
  std::printf(
      "\ngoal: %.0f augmented, normalised float32 pictures/s on one core, shuffling and batching included: "
      "%s (%.0f)\n",
      kGoal, met ? "met" : "NOT MET", whole);
  return met ? 0 : 1;
}
