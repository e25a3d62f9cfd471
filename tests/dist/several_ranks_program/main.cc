// One rank of a training with all that ranks share, on CPUs by Gloo or on GPUs by NCCL:
// several_ranks RUN-DIRECTORY STEPS [KEY=VALUE …].
//
//   device=cpu           or cuda: the GPU LOCAL_RANK, or the only one
//   every=5              steps between saves
//   at=WHAT:RANK:STEP    to that rank of a fresh run, after that step and a checkpoint: kill, term, stop
//                        (signals to itself), notice (makes RUN-DIRECTORY.notice)
//   late=1               the loop announces its updates
//   sharded=1            Adam's slots are shared among the ranks
//   fp16=1               mixed precision with a scaler (BF16 on a CPU)
//   spoil=RANK:STEP      one gradient of that rank, after the averages, is no number at that step
//   frozen=1             the first layer is frozen, and recorded by digest alone; 2: rank 1's is another
//   same=1               no training: DataParallel against a plain c10d::Reducer
//
// Every rank takes its part of the same global batches, so that any number of ranks computes the same, but
// for rounding.
#include <ATen/Context.h>
#include <c10/core/DeviceGuard.h>
#include <signal.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <utility>
#include <vector>

#include "holdfast/base/last_words.h"
#include "holdfast/checkpoint/checkpointer.h"
#include "holdfast/distributed/distributed.h"
#include "holdfast/distributed/internal/c10d_compat.h"
#include "holdfast/optim/fused_adam.h"
#include "holdfast/precision/autocast.h"
#include "holdfast/precision/grad_scaler.h"
#include "holdfast/snapshot/digest.h"
#include "holdfast/state/train_state.h"

namespace holdfast::test { namespace {

constexpr std::int64_t kGlobalBatch = 16;

template <class... Values>
void say(const char* format, Values... values) {
  std::printf(format, values...);
  std::fflush(stdout);
}

class Given {
 public:
  Given(int argc, char** argv) : run(argv[1]), steps(std::atoll(argv[2])) {
    for (int i = 3; i < argc; ++i) {
      const std::string word = argv[i];
      const auto equals = word.find('=');
      words_[word.substr(0, equals)] = word.substr(equals + 1);
    }
  }
  std::int64_t number(const std::string& key, std::int64_t otherwise = 0) const {
    const std::string given = text(key);
    return given.empty() ? otherwise : std::atoll(given.c_str());
  }
  std::string text(const std::string& key) const {
    const auto found = words_.find(key);
    return found == words_.end() ? "" : found->second;
  }
  // "A:B" as numbers; −1 where there is none.
  std::pair<std::int64_t, std::int64_t> two(const std::string& given) const {
    const auto colon = given.find(':');
    if (colon == std::string::npos) return {-1, -1};
    return {std::atoll(given.c_str()), std::atoll(given.c_str() + colon + 1)};
  }
  const std::string run;
  const std::int64_t steps;

 private:
  std::map<std::string, std::string> words_;
};

struct Net : torch::nn::Module {
  Net(c10::Device device, at::ScalarType type) {
    torch::manual_seed(5);
    first = register_module("first", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 8, 3).bias(false)));
    norm = register_module("norm", SyncBatchNorm2d(8));
    last = register_module("last", torch::nn::Linear(8, 4));
    to(device, type);
  }
  at::Tensor loss(const at::Tensor& x) {
    const at::Tensor out = last(norm(first(x)).relu().mean({2, 3}));
    return (out.to(x.scalar_type()) - x.narrow(1, 0, 1).mean({2, 3})).square().mean();
  }
  torch::nn::Conv2d first{nullptr};
  SyncBatchNorm2d norm{nullptr};
  torch::nn::Linear last{nullptr};
};

at::Tensor batch_of(std::int64_t step, const ProcessGroup& group, c10::Device device, at::ScalarType type) {
  const std::int64_t share = kGlobalBatch / group.world_size();
  return at::arange(kGlobalBatch * 3 * 64, at::kDouble)
      .add(static_cast<double>(step * 7))
      .sin()
      .reshape({kGlobalBatch, 3, 8, 8})
      .narrow(0, group.rank() * share, share)
      .to(device, type);
}

// As a user of plain c10d writes it.
std::shared_ptr<c10d::Reducer> plain_reducer(Net& net, const ProcessGroup& group) {
  const std::vector<at::Tensor> parameters = net.parameters();
  constexpr std::int64_t kFirst = 1 << 20, kBucket = 25 << 20;
  auto buckets = std::get<0>(c10d::compute_bucket_assignment_by_size(
      parameters, {kFirst, kBucket}, std::vector<bool>(parameters.size(), false)));
  std::reverse(buckets.begin(), buckets.end());
  return compat::make_reducer({.parameters = parameters,
                               .buckets = std::move(buckets),
                               .group = group.c10d(),
                               .bucket_bytes = kBucket,
                               .find_unused = false,
                               .names = {},
                               .first_bucket_bytes = kFirst});
}

// Prints whether gradients have the same bits, in each of some passes.
int compare(ProcessGroup& group, c10::Device device) {
  constexpr at::ScalarType kType = at::kFloat;
  Net ours(device, kType), theirs(device, kType);
  synchronize_batch_norms(ours, group);
  synchronize_batch_norms(theirs, group);
  int equal = 0;
  {
    DataParallel parallel(ours, group);
    const auto reducer = plain_reducer(theirs, group);
    const auto logger = std::make_shared<c10d::Logger>(reducer);
    reducer->set_logger(logger);
    logger->set_construction_data_and_log("model", {}, -1, true, false, false);
    for (int pass = 0; pass < 5; ++pass) {
      ours.zero_grad();
      theirs.zero_grad();
      parallel.before_forward();
      parallel.backward(ours.loss(batch_of(pass, group, device, kType)));
      reducer->prepare_for_forward();
      reducer->rebuild_buckets();
      const at::Tensor loss = theirs.loss(batch_of(pass, group, device, kType));
      reducer->prepare_for_backward({});
      loss.backward();
      bool same = true;
      for (std::size_t i = 0; i < ours.parameters().size(); ++i) {
        same = same && at::equal(ours.parameters()[i].grad(), theirs.parameters()[i].grad());
      }
      equal += same ? 1 : 0;
    }
  }
  say("same %d of 5\n", equal);
  group.leave();
  return 0;
}

// A checkpoint of any step: on a busy machine the first one may take longer than the steps to this one.
bool has_checkpoint(const std::filesystem::path& run) {
  std::error_code none;
  for (const auto& file : std::filesystem::directory_iterator(run, none)) {
    if (file.path().filename().string().starts_with("step-")) return true;
  }
  return false;
}

// Begins once the next start can go on from here; returns once it has been heard.
void happen(const std::string& what, const Given& given, const Checkpointer& checkpointer) {
  for (int i = 0; i < 60'000 && !has_checkpoint(given.run); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (what == "kill") raise(SIGKILL);
  if (what == "stop") raise(SIGSTOP);
  if (what == "term") raise(SIGTERM);
  if (what == "notice") std::ofstream(given.run + ".notice").close();
  while (checkpointer.notices().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

// The optimizer, whole or in shares, and what belongs to an update.
class Update {
 public:
  Update(const Given& given, Net& net, DataParallel& parallel, ProcessGroup& group, c10::Device device)
      : given_(given),
        net_(net),
        parallel_(parallel),
        group_(group),
        adam_(net.parameters(), torch::optim::AdamWOptions(1e-2).weight_decay(0.01)) {
    if (given.number("sharded") != 0) sharded_.emplace(adam_, net, group);
    if (given.number("fp16") == 0) return;
    scaler_.emplace(device, GradScalerOptions{.init_scale = 256});
    scaler_->agree_by(found_on_any_rank(group));
  }
  void add_to(TrainState& state) {
    sharded_ ? state.add("optimizer", *sharded_) : state.add("optimizer", adam_);
    if (scaler_) state.add("scaler", *scaler_);
  }
  void zero_grad() { sharded_ ? sharded_->zero_grad() : adam_.zero_grad(); }
  void backward(const at::Tensor& loss) {
    const at::Tensor scaled = scaler_ ? scaler_->scale(loss) : loss;
    parallel_.backward(scaled, sharded_ ? Gradients::accumulate : Gradients::reduce);
    if (sharded_) sharded_->reduce();
  }
  // True if it was skipped.
  bool step(std::int64_t number) {
    const auto [rank, when] = given_.two(given_.text("spoil"));
    if (rank == group_.rank() && when == number) {
      const at::NoGradGuard no_grad;
      for (at::Tensor& parameter : adam_.param_groups()[0].params()) {
        if (parameter.numel() == 0) continue;
        parameter.mutable_grad().fill_(std::numeric_limits<float>::infinity());
        break;
      }
    }
    std::optional<at::Tensor> found;
    if (scaler_) found = scaler_->unscale(adam_).clone();
    adam_.step_scaled(std::nullopt, found);
    if (scaler_) scaler_->update();
    if (sharded_) sharded_->gather();
    return found && found->item<float>() != 0;
  }

 private:
  const Given& given_;
  Net& net_;
  DataParallel& parallel_;
  ProcessGroup& group_;
  FusedAdamW adam_;
  std::optional<ShardedOptimizer> sharded_;
  std::optional<GradScaler> scaler_;
};

int train(const Given& given, ProcessGroup& group, c10::Device device) {
  Agreement agreement(group);
  // In double rounding stays far below what a wrong share of a batch would change.
  const at::ScalarType type = given.number("fp16") != 0 ? at::kFloat : at::kDouble;
  Net net(device, type);
  synchronize_batch_norms(net, group);
  const std::int64_t frozen = given.number("frozen");
  if (frozen != 0) net.first->weight.requires_grad_(false);
  DataParallel parallel(net, group);
  // Behind DataParallel, which makes the ranks' weights equal.
  if (frozen == 2 && group.rank() == 1) net.first->weight.detach().mul_(2);
  Update update(given, net, parallel, group, device);
  SumOverRanks losses(group, "losses");
  TrainState state;
  state.add("model", net, {.frozen = frozen != 0 ? Frozen::digest : Frozen::store});
  update.add_to(state);
  state.add("gradients", parallel);
  Checkpointer checkpointer(
      state, {.directory = given.run,
              .every = {SaveEvery::steps(given.number("every", 5))},
              .notices = {.notice_file = given.run + ".notice", .cloud = false, .on_notice = OnNotice::exit},
              .ranks = {.channel = &agreement}});
  const Resumed resumed = checkpointer.resume();
  say("resumed %lld\n", static_cast<long long>(resumed.step));
  const std::string event = resumed.fresh ? given.text("at") : "";
  const auto [hit, when] = given.two(event.substr(std::min(event.find(':') + 1, event.size())));
  // A CPU's kernels for 16 bits are those of BF16; the scaler works all the same.
  const Precision half = device.is_cuda() ? Precision::fp16 : Precision::bf16;
  const Precision precision = given.number("fp16") != 0 ? half : Precision::fp32;
  std::int64_t skipped = 0;
  while (state.step() < given.steps) {
    update.zero_grad();
    parallel.before_forward();
    at::Tensor loss;
    {
      const AutocastGuard autocast(precision, device.type());
      loss = net.loss(batch_of(state.step(), group, device, type));
    }
    losses.begin(loss.detach().to(at::kDouble));
    update.backward(loss);
    if (given.number("late") != 0) checkpointer.before_update();
    const bool left_out = update.step(state.step() + 1);
    skipped += left_out ? 1 : 0;
    const double mean = losses.wait().item<double>() / group.world_size();
    const Decision decision = checkpointer.after_step({.loss = mean, .skipped = left_out});
    say("loss %lld %.17g\n", static_cast<long long>(state.step()), mean);
    if (decision.stop) break;
    if (hit == group.rank() && when == state.step())
      happen(event.substr(0, event.find(':')), given, checkpointer);
  }
  const int code = checkpointer.finish();
  say("state %lld %s\n", static_cast<long long>(state.step()), to_hex(checkpointer.state_digest()).c_str());
  say("skipped %lld\n", static_cast<long long>(skipped));
  group.leave();
  return code;
}

int live(const Given& given) {
  const LaunchEnvironment place = launch_environment();
  c10::Device device = c10::kCPU;
  if (given.text("device") == "cuda") {
    at::globalContext().setDeterministicCuDNN(true);
    at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
    const auto gpus = c10::impl::VirtualGuardImpl(c10::kCUDA).deviceCount();
    if (gpus == 0) throw UsageError("device=cuda: there is no GPU here");
    device = c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(place.local_rank % gpus));
  }
  const c10::OptionalDeviceGuard guard(device.is_cuda() ? std::optional(device) : std::nullopt);
  ProcessGroup group({.place = place, .device = device, .timeout = std::chrono::minutes(2)});
  return given.number("same") != 0 ? compare(group, device) : train(given, group, device);
}

}}  // namespace holdfast::test

int main(int argc, char** argv) {
  if (argc < 3) return 64;
  setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  using namespace holdfast::test;
  return holdfast::run([&] { return live({argc, argv}); });
}
