#include "measure.h"

#include <torch/utils.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <string_view>

#include "../shared/temporary_folder.h"
#include "catalogue.h"
#include "device.h"
#include "holdfast/base/error.h"
#include "holdfast/precision/precision.h"
#include "memory.h"
#include "peer.h"
#include "peer_job.h"
#include "stepper.h"
#include "training.h"
#include "workload.h"

namespace holdfast::bench {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kWindows = 9;
// What a device's libraries take besides tensors; and of what is free, what is left alone.
constexpr double kScratch = 1.1;
constexpr double kReserve = 0.95;
constexpr std::int64_t kSmallBatch = 2;
constexpr char kWithPeers[] = "; that is with its peers beside it";

// Each is seeded before its part, so that the peers can be.
enum Seed : std::uint64_t { kWeights = 1, kInputs = 2, kSteps = 3 };

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

void stop_if_told(const Setup& setup) {
  if (setup.stop && setup.stop()) throw Stopped{};
}

double processes(const Setup& setup) { return 1 + static_cast<double>(setup.peers.size()); }

double bytes_of_weights(const Training& training) {
  double bytes = 0;
  for (const at::Tensor& parameter : training.work().module->parameters()) {
    bytes += static_cast<double>(parameter.nbytes());
  }
  return bytes;
}

Training training_of(const Row& row, const Setup& setup) {
  const Kind& kind = kind_of(row.cell.model);
  torch::manual_seed(kWeights);
  Workload work = make_workload({.model = row.cell.model,
                                 .variant = setup.variant,
                                 .bn = row.cell.layout == "nhwc" ? setup.bn : "aten",
                                 .pixels = setup.pixels,
                                 .dropout = setup.peers.empty(),
                                 .fixed = !setup.peers.empty(),
                                 .tiny = setup.tiny,
                                 .device = setup.device});
  const bool lamb = kind.global != 0;
  return {std::move(work),
          setup.device,
          {.precision = parse_precision(row.cell.precision),
           .layout = row.cell.layout,
           .optimizer = {.name = lamb ? "lamb" : "sgd", .weight_decay = lamb ? 0.01 : 4e-5},
           .accumulation = row.cell.accumulation,
           .update = setup.update}};
}

// Weights, gradients, and what an optimizer that steps keeps beside them.
double fixed_bytes(double weights, const Kind& kind, const Setup& setup) {
  return weights * (2 + (setup.update ? kind.slots : 0)) * processes(setup);
}

// As batch_of() has it: a batch norm needs two.
std::int64_t least_batch(const Kind& kind) { return kind.has_layouts ? kSmallBatch : 1; }

// Learnt from a batch of `seen`. Leaves the training as it was, but for running statistics, which no loss
// depends on.
Demand demand_of(Training& training, std::int64_t seen, const Kind& kind, const Setup& setup) {
  const double weights = bytes_of_weights(training);
  const double peak = peak_bytes(setup.device, [&] {
    training.give(training.work().draw(seen));
    training.pass();
  });
  training.forget_gradients();
  training.give({});
  const double activations = std::max(0.0, peak - weights) * kScratch;
  return {.fixed = fixed_bytes(weights, kind, setup),
          .per_sample = activations / static_cast<double>(seen) * processes(setup),
          .seen = seen,
          .least = least_batch(kind)};
}

void say_no_room(Row& row, const Setup& setup, const Demand& demand, double free) {
  row.why = why_no_room(demand, row.cell.batch, setup.full_batch, free);
  if (row.why.empty()) return;
  if (!setup.peers.empty()) row.why += kWithPeers;
  row.needed_bytes = demand.of(row.cell.batch);
  row.batch_that_fits = demand.seen > 0 ? demand.batch_in(free) : 0;
}

// It needs at least the estimate, and more than was free.
void say_overflow(Row& row, const Setup& setup, const Demand& demand, double free) {
  row.why = why_overflowed(demand, row.cell.batch, setup.full_batch, free);
  if (!setup.peers.empty()) row.why += kWithPeers;
  row.needed_bytes = std::max(demand.of(row.cell.batch), free);
  row.batch_that_fits = batch_after_overflow(demand, row.cell.batch);
}

double free_for(const Setup& setup) { return kReserve * setup.free.value_or(free_bytes(setup.device)); }

// Before anything is made: do the weights fit?
bool weights_fit(Row& row, const Setup& setup) {
  if (setup.tiny && row.cell.layout == kNoLayout) return true;
  const Kind& kind = kind_of(row.cell.model);
  say_no_room(row, setup, {.fixed = fixed_bytes(4 * kind.parameters, kind, setup)}, free_for(setup));
  return row.why.empty();
}

// A GPU says by itself that it is full, a CPU has the process killed. Small batches are tried, too: without
// the optimizer's slots and without peers, which come on top of what a trial takes.
bool batch_fits(Row& row, const Setup& setup, Training& training) {
  if (setup.device.is_cuda() && !setup.free) return true;
  const double taken = setup.free ? 0 : bytes_of_weights(training);
  const double free = free_for(setup) + taken;
  const std::int64_t seen = std::min(row.cell.batch, kSmallBatch);
  say_no_room(row, setup, demand_of(training, seen, kind_of(row.cell.model), setup), free);
  return row.why.empty();
}

bool is_overflow(const c10::Error& error) {
  return dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr ||
         std::string_view(error.what_without_backtrace()).find("can't allocate memory") !=
             std::string_view::npos;  // the CPU's allocator
}

// By an estimate from the largest batch that can be tried.
bool explain_by_trial(Row& row, const Setup& setup, std::int64_t seen) {
  try {
    Training training = training_of(row, setup);
    const double free = free_for(setup) + (setup.free ? 0 : bytes_of_weights(training));
    const Demand demand = demand_of(training, seen, kind_of(row.cell.model), setup);
    say_no_room(row, setup, demand, free);
    if (row.why.empty()) say_overflow(row, setup, demand, free);
    return true;
  } catch (const c10::Error& error) {
    if (!is_overflow(error)) throw;
    return false;
  }
}

void explain_overflow(Row& row, const Setup& setup) {
  const Kind& kind = kind_of(row.cell.model);
  for (std::int64_t seen = std::min(row.cell.batch, kSmallBatch); seen >= least_batch(kind); --seen) {
    const bool explained = explain_by_trial(row, setup, seen);
    release_memory();
    if (explained) return;
  }
  say_overflow(row, setup, {.fixed = fixed_bytes(4 * kind.parameters, kind, setup)}, free_for(setup));
}

struct Rival {
  PeerFigure* figure;
  std::unique_ptr<Peer> peer;

  void turn(int steps) {
    if (!figure->why.empty()) return;
    try {
      figure->seconds.push_back(peer->steps(steps).seconds / steps);
    } catch (const Error& error) {
      figure->why = error.what();
    }
  }
};

std::vector<Rival> start_peers(Row& row, const Setup& setup, const std::filesystem::path& folder) {
  for (const std::string& kind : setup.peers) row.peers.push_back({.name = kind});
  std::vector<Rival> rivals;
  for (PeerFigure& figure : row.peers) {
    const auto meanwhile = [&setup] { stop_if_told(setup); };
    try {
      auto peer = std::make_unique<Peer>(setup.root, folder, figure.name, meanwhile);
      const double loss = peer->steps(1).loss;
      figure.first_loss_difference = std::abs(loss - row.first_loss) / std::abs(row.first_loss);
      peer->steps(std::max(1, setup.warm_up - 1));
      rivals.push_back({.figure = &figure, .peer = std::move(peer)});
    } catch (const Error& error) {
      figure.why = error.what();
    }
  }
  return rivals;
}

int planned_steps(const Cell& cell, const Setup& setup, const std::function<double(int)>& window) {
  const int least = setup.peers.empty() ? 1 : kWindows;
  if (setup.seconds == 0) return std::max(setup.steps, least);
  const int tried = setup.device.is_cuda() && cell.global == 0 ? 5 : 1;
  const double each = window(tried) / tried;
  return static_cast<int>(std::clamp(std::round(setup.seconds / each), 1.0 * least, 1e6));
}

// There and back again: nobody is always first.
void take_turns(Row& row, std::vector<Rival>& rivals, int steps, const std::function<double(int)>& ours) {
  const int count = std::min(steps, kWindows);
  for (int window = 0; window < count; ++window) {
    const int share = steps * (window + 1) / count - steps * window / count;
    for (std::size_t i = 0; i <= rivals.size(); ++i) {
      const std::size_t who = window % 2 == 0 ? i : rivals.size() - i;
      if (who == rivals.size()) {
        row.seconds.push_back(ours(share) / share);
      } else {
        rivals[who].turn(share);
      }
    }
  }
}

void measure_into(Row& row, const Setup& setup) {
  require_supported(parse_precision(row.cell.precision), setup.device);
  const bool graph = row.cell.mode == "graph";
  if (graph) row.why = why_no_graph(setup.device);
  if (!row.why.empty() || !weights_fit(row, setup)) return;
  set_math_mode(parse_precision(row.cell.precision));
  Training training = training_of(row, setup);
  row.size = training.work().size;
  row.bn = training.work().bn;
  row.note = training.work().note;
  row.train_flops = training.work().train_flops;
  stop_if_told(setup);
  if (!batch_fits(row, setup, training)) return;
  torch::manual_seed(kInputs);
  training.give(training.work().draw(row.cell.batch));
  const TemporaryFolder folder;
  if (!setup.peers.empty()) {
    write_job({.model = row.cell.model, .variant = setup.variant, .tiny = setup.tiny, .device = setup.device},
              training, folder.path());
  }
  torch::manual_seed(kSteps);
  const auto between = [&setup] { stop_if_told(setup); };
  Stepper stepper(training, setup.device, graph);
  stepper.warm_up(1, between);
  row.first_loss = training.loss();
  stepper.warm_up(setup.warm_up - 1, between);
  if (const std::string why = stepper.record(); !why.empty()) {
    row.note += (row.note.empty() ? "" : "; ") + why;
    row.counts_for_ratios = false;
  }
  const auto fused = [](const std::string& kind) { return kind.find("fused") != std::string::npos; };
  if (training.options().optimizer.name == "lamb" && std::ranges::any_of(setup.peers, fused)) {
    row.note += (row.note.empty() ? "" : "; ") + std::string("the peers' LAMB has no fused form");
  }
  std::vector<Rival> rivals = start_peers(row, setup, folder.path());
  const auto window = [&](int steps) {
    const auto begin = Clock::now();
    for (int i = 0; i < steps; ++i) {
      between();
      stepper.step();
    }
    wait_for(setup.device);
    return seconds_since(begin);
  };
  take_turns(row, rivals, planned_steps(row.cell, setup, window), window);
  row.loss = training.loss();
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

Row measure_once(const Cell& cell, const Setup& setup) {
  const Row bare{.cell = cell, .unit = kind_of(cell.model).unit};
  Row row = bare;
  bool overflowed = false;
  try {
    measure_into(row, setup);
  } catch (const UsageError& error) {
    row.why = error.what();
  } catch (const c10::Error& error) {
    overflowed = is_overflow(error);
    row.why = "it failed: " + first_line(error.what_without_backtrace());
  }
  release_memory();
  if (overflowed) {
    row = bare;
    try {
      explain_overflow(row, setup);
    } catch (const c10::Error& error) {
      row.why = "it does not fit, and the search for a batch that does failed: " +
                first_line(error.what_without_backtrace());
    }
    release_memory();
  }
  if (!row.why.empty()) {
    row.seconds.clear();
    row.peers.clear();
  }
  row.note = first_line(row.note);
  return row;
}

}  // namespace

Row measure(const Cell& cell, const Setup& setup) {
  Row row = measure_once(cell, setup);
  // An update that is made of passes has them as large as they fit.
  while (cell.global != 0 && row.batch_that_fits > 0 && row.batch_that_fits < row.cell.batch) {
    const Update update = update_of(cell.global, row.batch_that_fits);
    Cell smaller = row.cell;
    smaller.batch = update.batch;
    smaller.accumulation = update.accumulation;
    row = measure_once(smaller, setup);
    if (!row.measured()) continue;
    row.note += (row.note.empty() ? "" : "; ") + std::to_string(cell.batch) + " in a pass do not fit";
  }
  return row;
}

}  // namespace holdfast::bench
