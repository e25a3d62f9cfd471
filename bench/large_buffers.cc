// What a replay buffer of 213 MB costs a save (docs/large_buffers.md): saved whole, partly filled, and
// in a mapped file beside the run.
//
//   build/release/bin/bench_large_buffers --directory DIR [--saves N]
//
// Between two saves 1,000 rows are written. Prints for each way the size of a checkpoint and medians: how long
// the training waits for a save, and how long until it is durable. Needs 1 GB of memory and of disk.
#include <ATen/ATen.h>
#include <sys/mman.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/utils.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "holdfast/base/freed_memory.h"
#include "holdfast/holdfast.h"
#include "shared/median.h"

namespace {

constexpr std::int64_t kRows = 100'000, kWidth = 532, kSlack = 10'000, kRowsBetweenSaves = 1'000;

// The newest kRows rows, in memory. `filled_only`: a checkpoint has no room that was never written.
class MemoryRing {
 public:
  explicit MemoryRing(bool filled_only) : filled_only_(filled_only) {}
  void push(const at::Tensor& row) { rows_[written_++ % kRows].copy_(row); }

  void save(holdfast::StateWriter& out) const {
    out.put("written", written_);
    out.put_tensor("rows", filled_only_ ? rows_.narrow(0, 0, filled()) : rows_);
  }
  void load(const holdfast::StateReader& in) {
    written_ = in.get_int("written");
    const at::Tensor rows = in.get_tensor("rows");
    rows_.narrow(0, 0, rows.size(0)).copy_(rows);
  }

 private:
  std::int64_t filled() const { return std::min(written_, kRows); }

  bool filled_only_;
  at::Tensor rows_ = torch::zeros({kRows, kWidth});
  std::int64_t written_ = 0;
};

// The same in a file. A checkpoint holds only how many rows were written.
class MappedRing {
 public:
  explicit MappedRing(const std::filesystem::path& file)
      : rows_(at::from_file(file.string(), /*shared=*/true, (kRows + kSlack) * kWidth, at::kFloat)
                  .view({kRows + kSlack, kWidth})) {}
  void push(const at::Tensor& row) { rows_[written_++ % (kRows + kSlack)].copy_(row); }

  void save(holdfast::StateWriter& out) const {
    if (::msync(rows_.data_ptr(), rows_.nbytes(), MS_SYNC) != 0) throw std::runtime_error("msync");
    out.put("written", written_);
  }
  void load(const holdfast::StateReader& in) { written_ = in.get_int("written"); }

 private:
  at::Tensor rows_;
  std::int64_t written_ = 0;
};

double milliseconds_since(std::chrono::steady_clock::time_point began) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - began).count();
}

template <class MakeRing>
void measure(const std::string& name, const std::filesystem::path& directory, int saves,
             std::int64_t rows_first, const MakeRing& make_ring) {
  torch::manual_seed(1);
  torch::nn::Linear net(kWidth, 170);
  torch::optim::Adam optimizer(net->parameters());
  holdfast::TrainState state;
  state.add("net", *net);
  state.add("optimizer", optimizer);
  holdfast::CheckpointerOptions options;
  options.directory = directory / "run";
  options.every = {};
  holdfast::Checkpointer checkpointer(state, options);
  auto ring = make_ring(checkpointer.directory().parent_path() / "ring");
  state.add("ring", ring);
  checkpointer.resume();
  const auto push = [&](std::int64_t rows) {
    for (std::int64_t i = 0; i < rows; ++i) ring.push(torch::randn({kWidth}));
  };
  const auto step = [&] {
    optimizer.zero_grad();
    net->forward(torch::randn({8, kWidth})).square().mean().backward();
    optimizer.step();
    checkpointer.after_step();
  };
  push(rows_first);
  step();
  checkpointer.save().wait();  // makes the memory of an image, and writes the ring's first rows
  std::vector<double> waits, durable, sizes;
  for (int i = 0; i < saves; ++i) {
    push(kRowsBetweenSaves);
    step();
    const auto began = std::chrono::steady_clock::now();
    const holdfast::SaveHandle handle = checkpointer.save();
    handle.wait_staged();
    waits.push_back(milliseconds_since(began));
    handle.wait();
    durable.push_back(milliseconds_since(began));
    const auto bytes = std::filesystem::file_size(options.directory / checkpointer.last_durable().checkpoint);
    sizes.push_back(static_cast<double>(bytes) / 1e6);
  }
  using holdfast::bench::median;
  std::printf("%-34s %9.1f %12.1f %12.1f\n", name.c_str(), median(sizes), median(waits), median(durable));
  checkpointer.request_stop("measured");
  checkpointer.finish();
}

int bench(const std::filesystem::path& directory, int saves) {
  holdfast::keep_freed_memory();
  std::printf("%-34s %9s %12s %12s\n", "ring of 213 MB", "MB a save", "ms waited", "ms, durable");
  const auto fresh = [&](const char* name) {
    std::filesystem::remove_all(directory / name);
    std::filesystem::create_directories(directory / name);
    return directory / name;
  };
  measure("in memory, saved whole", fresh("whole"), saves, kRows,
          [](const auto&) { return MemoryRing(false); });
  // In the middle of its saves.
  const std::int64_t filled = std::min(kRows, kRows / 10 + (saves + 1) / 2 * kRowsBetweenSaves);
  measure("in memory, " + std::to_string(100 * filled / kRows) + " % filled", fresh("filled"), saves,
          kRows / 10, [](const auto&) { return MemoryRing(true); });
  measure("a mapped file beside the run", fresh("mapped"), saves, kRows,
          [](const auto& file) { return MappedRing(file); });
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("What a replay buffer of 213 MB costs a save: saved whole, partly filled, in a mapped file");
  std::string directory;
  int saves = 9;
  app.add_option("--directory", directory, "where the runs write 1 GB")
      ->required()
      ->check(CLI::ExistingDirectory);
  app.add_option("--saves", saves, "of each way")->capture_default_str()->check(CLI::Range(1, 10'000));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(holdfast::ExitCode::usage);
  }
  return holdfast::run([&] { return bench(directory, saves); });
}
