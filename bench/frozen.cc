// A save of a fine-tuning: ResNet-50 with a frozen trunk and a new head, trained by SGD with momentum. Three
// runs take turns: one stores the trunk, one records its digests, one those of its buffers, too.
//
//   build/release/bin/bench_frozen --directory DIR [--repetitions N] [--classes N]
//
// Prints the file's bytes, the time from the call to the durable checkpoint, and that of the training thread:
// medians, and the shares of the run that stores. DIR is on the disk in question. A commit waits for the disk
// a few times, however few bytes it has: "two numbers" is a run of a tiny network, and "raw" a file of 4 KiB,
// fsync, rename, fsync.
#include <fcntl.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "examples/models/resnet.h"
#include "holdfast/base/error.h"
#include "holdfast/checkpoint/checkpointer.h"
#include "holdfast/state/train_state.h"
#include "shared/median.h"
#include "shared/seconds.h"
#include "shared/temporary_folder.h"

namespace {

using namespace holdfast;
using bench::now;

struct Times {
  std::vector<double> blocked, durable;  // seconds from the call
  std::uint64_t bytes = 0;               // of the last file
};

class FineTuning {
 public:
  FineTuning(std::shared_ptr<torch::nn::Module> net, const ModuleOptions& options,
             const std::filesystem::path& directory)
      : directory_(directory), net_(std::move(net)) {
    std::vector<at::Tensor> head;
    for (auto& item : net_->named_parameters()) {
      if (item.value().requires_grad()) head.push_back(item.value());
    }
    optimizer_ = std::make_unique<torch::optim::SGD>(head, torch::optim::SGDOptions(0.1).momentum(0.9));
    state_.add("model", *net_, options);
    state_.add("optimizer", *optimizer_);
    checkpointer_ = std::make_unique<Checkpointer>(
        state_,
        CheckpointerOptions{
            .directory = directory_, .every = {}, .keep = KeepLast{2}, .notices = {.hear_signals = false}});
    checkpointer_->resume();
    Times warm_up;
    for (int i = 0; i < 3; ++i) save(warm_up);  // plans the file, and faults in the image
  }

  void save(Times& times) {
    for (auto& item : net_->named_parameters()) {
      if (item.value().requires_grad()) item.value().mutable_grad() = item.value().detach().clone();
    }
    optimizer_->step();
    optimizer_->zero_grad();
    checkpointer_->request_save();
    const double begin = now();
    SaveHandle handle = checkpointer_->after_step().save;
    times.blocked.push_back(now() - begin);
    if (handle.wait() != SaveStatus::durable) throw Error(handle.error(), ExitCode::io_failed);
    times.durable.push_back(now() - begin);
    times.bytes = std::filesystem::file_size(directory_ / handle.checkpoint());
  }

 private:
  std::filesystem::path directory_;
  std::shared_ptr<torch::nn::Module> net_;
  std::unique_ptr<torch::optim::SGD> optimizer_;
  TrainState state_;
  std::unique_ptr<Checkpointer> checkpointer_;
};

// ResNet-50 of which the last layer alone is trained.
std::shared_ptr<torch::nn::Module> with_frozen_trunk(int classes) {
  ResNet net(ResNetOptions{.num_classes = classes});
  for (auto& item : net->named_parameters()) item.value().requires_grad_(item.key().starts_with("fc."));
  net->eval();
  return net.ptr();
}

// Lets the save before end, so that no row pays for another: its writer deletes an older file after the commit.
void settle(const std::filesystem::path& directory) {
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const int folder = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY);
  if (folder < 0 || ::syncfs(folder) != 0) throw IoError("sync", directory, errno);
  ::close(folder);
}

// What any commit of one file costs here.
double raw_commit(const std::filesystem::path& directory) {
  const std::string temporary = directory / "raw.new", name = directory / "raw";
  const std::array<char, 4096> block{};
  const int folder = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY);
  const double begin = now();
  const int file = ::open(temporary.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600);
  if (folder < 0 || file < 0 || ::write(file, block.data(), block.size()) != 4096 || ::fsync(file) != 0 ||
      ::rename(temporary.c_str(), name.c_str()) != 0 || ::fsync(folder) != 0) {
    throw IoError("write", temporary, errno);
  }
  const double took = now() - begin;
  ::close(file);
  ::close(folder);
  return took;
}

int run(const std::filesystem::path& beneath, int repetitions, int classes) {
  const bench::TemporaryFolder folder(beneath);
  struct Row {
    const char* what;
    ModuleOptions options;
  };
  const std::array<Row, 4> rows{
      {{"stored", {}},
       {"frozen = digest", {.frozen = Frozen::digest}},
       {"... and frozen_buffers", {.frozen = Frozen::digest, .frozen_buffers = true}},
       {"two numbers", {}}}};
  std::vector<std::unique_ptr<FineTuning>> runs;
  std::array<Times, 4> all;
  std::vector<double> raw;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto directory = folder.path() / std::to_string(i);
    auto net = i < 3 ? with_frozen_trunk(classes) : torch::nn::Linear(1, 1).ptr();
    runs.push_back(std::make_unique<FineTuning>(std::move(net), rows[i].options, directory));
  }
  for (int repetition = 0; repetition < repetitions; ++repetition) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      settle(folder.path());
      runs[i]->save(all[i]);
    }
    settle(folder.path());
    raw.push_back(raw_commit(folder.path()));
  }
  std::printf("ResNet-50, %d classes, frozen trunk, %d saves each\n", classes, repetitions);
  const double bytes = static_cast<double>(all[0].bytes);
  const double durable = bench::median(all[0].durable), blocked = bench::median(all[0].blocked);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const double here = bench::median(all[i].durable), held = bench::median(all[i].blocked);
    std::printf("%-23s %11llu bytes (%.4f)  durable %7.2f ms (%.3f)  blocked %6.2f ms (%.3f)\n", rows[i].what,
                static_cast<unsigned long long>(all[i].bytes), static_cast<double>(all[i].bytes) / bytes,
                here * 1e3, here / durable, held * 1e3, held / blocked);
  }
  const double least = bench::median(raw);
  std::printf("%-23s %11s                 durable %7.2f ms (%.3f)\n", "raw", "4096 bytes", least * 1e3,
              least / durable);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("A save of a fine-tuning with a frozen trunk");
  std::string directory = ".";
  int repetitions = 21, classes = 10;
  app.add_option("--directory", directory, "where the runs write");
  app.add_option("--repetitions", repetitions, "saves of each run")->check(CLI::Range(1, 10'000));
  app.add_option("--classes", classes, "of the head")->check(CLI::Range(1, 100'000));
  CLI11_PARSE(app, argc, argv);
  try {
    ::setenv("HOLDFAST_LOG", "error", 1);
    return run(directory, repetitions, classes);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_frozen: %s\n", error.what());
    return 1;
  }
}
