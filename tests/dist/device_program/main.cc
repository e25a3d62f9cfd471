// One rank of a training on simulated devices (device_source.h), whose collectives are kernels in the
// device's queue: dist_device RUN-DIRECTORY STEPS [KEY=VALUE …].
//
//   kill=RANK:STEP      that rank of a fresh run takes no part in the collective of that step, and is killed
//                       after its boundary, where all have agreed on what they do
//   durable=STEP        rank 0 waits there until the save of that step is durable
//   limit=0             MB/s that a write may take
//   elements=1000       of the weight
//   patience=30         seconds that a save may take after a loss
//   abort=early         aborts the collectives as soon as one fails, as nobody should
//
// Like a real loop it runs one step ahead of the device. A kernel whose partner is gone never ends. If it is
// aborted, it leaves wrong numbers, and everything behind it in the queue goes on with them.
#include <signal.h>
#include <torch/types.h>

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "holdfast/base/last_words.h"
#include "holdfast/checkpoint/checkpointer.h"
#include "holdfast/distributed/agreement.h"
#include "holdfast/distributed/internal/nccl_backend.h"
#include "holdfast/distributed/process_group.h"
#include "support/device_source.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;

template <class... Values>
void say(const char* format, Values... values) {
  std::printf(format, values...);
  std::fflush(stdout);
}

// Its kernels end together on all ranks, which Gloo sees to.
class KernelNccl final : public c10d::Backend, public PendingCollectives {
 public:
  KernelNccl(int rank, int world_size) : c10d::Backend(rank, world_size) {}
  const std::string getBackendName() const override { return "nccl"; }
  c10d::ErrorType getError() override { return c10d::ErrorType::SUCCESS; }
  bool pending() override { return begun_ != ended_; }
  void shutdown() override {}
  void abort() override {
    const std::lock_guard lock(mutex_);
    aborted_ = true;
    changed_.notify_all();
  }

  void begin() { ++begun_; }
  void kernel(c10d::Backend& gloo) {
    try {
      std::vector<at::Tensor> tensors = {at::ones({1})};
      gloo.allreduce(tensors)->wait();
    } catch (const std::exception&) {
      std::unique_lock lock(mutex_);
      if (aborts_early) aborted_ = true;
      changed_.wait(lock, [this] { return aborted_; });
      *wrong = true;
    }
    ++ended_;
  }
  const std::shared_ptr<std::atomic<bool>> wrong = std::make_shared<std::atomic<bool>>(false);
  bool aborts_early = false;

 private:
  std::atomic<int> begun_{0}, ended_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool aborted_ = false;
};

using Given = std::map<std::string, std::string>;

int train(const std::string& directory, std::int64_t steps, const Given& given) {
  const auto number = [&](const std::string& key, std::int64_t otherwise) {
    const auto found = given.find(key);
    return found == given.end() ? otherwise : std::atoll(found->second.c_str());
  };
  make_nccl_by(
      [](int rank, int world_size) -> c10::intrusive_ptr<c10d::Backend> {
        return c10::make_intrusive<KernelNccl>(rank, world_size);
      },
      std::chrono::seconds(number("patience", 30)));
  ProcessGroup group({.device = c10::Device(c10::kCUDA, 0)});
  const auto gloo = group.c10d()->getBackend(c10::DeviceType::CPU);
  auto& nccl = dynamic_cast<KernelNccl&>(*group.c10d()->getBackend(c10::DeviceType::CUDA));
  nccl.aborts_early = given.contains("abort");
  Agreement agreement(group);
  DeviceSource source({.elements = static_cast<std::size_t>(number("elements", 1000))});
  Checkpointer checkpointer(source, {.directory = directory,
                                     .every = {SaveEvery::steps(5)},
                                     .notices = {.cloud = false},
                                     .writing = {.write_limit = static_cast<double>(number("limit", 0))},
                                     .ranks = {.channel = &agreement, .shared_write = false}});
  const Resumed resumed = checkpointer.resume();
  say("resumed %lld %s\n", static_cast<long long>(resumed.step),
      source.holds_step(resumed.step) ? "whole" : "wrong");
  const auto kill = given.find("kill");
  const bool dies = resumed.fresh && kill != given.end() && std::atoi(kill->second.c_str()) == group.rank();
  const std::int64_t dies_at =
      dies ? std::atoll(kill->second.substr(kill->second.find(':') + 1).c_str()) : -1;
  auto before = std::make_shared<FakeEvent>();
  before->set();
  int code = 0;
  while (source.step() < steps) {
    nccl.begin();
    source.forward();
    if (source.step() + 1 != dies_at) source.device().training.add([&nccl, &gloo] { nccl.kernel(*gloo); });
    source.update();
    source.spoil_if(nccl.wrong);
    const auto now = std::make_shared<FakeEvent>();
    source.device().training.add([now] { now->set(); });
    const Decision decision = checkpointer.after_step({});
    if (decision.saved) say("saved %lld\n", static_cast<long long>(source.step()));
    if (group.rank() == 0 && source.step() == number("durable", -1)) decision.save.wait();
    if (decision.stop) break;
    if (source.step() == dies_at) raise(SIGKILL);
    // As one that reads the loss of the step before.
    std::exchange(before, now)->wait();
  }
  code = checkpointer.finish();
  say("state %lld %s\n", static_cast<long long>(source.step()),
      source.holds_step(source.step()) ? "whole" : "wrong");
  group.leave();
  return code;
}

}}  // namespace holdfast::test

int main(int argc, char** argv) {
  if (argc < 3) return 64;
  holdfast::test::Given given;
  for (int i = 3; i < argc; ++i) {
    const std::string word = argv[i];
    const auto equals = word.find('=');
    given[word.substr(0, equals)] = word.substr(equals + 1);
  }
  return holdfast::run([&] { return holdfast::test::train(argv[1], std::atoll(argv[2]), given); });
}
