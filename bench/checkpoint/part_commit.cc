// Durable writes, and how long the training thread waits for them. The ceiling, ours and every peer take
// turns; each repetition starts with another one.
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "ceiling.h"
#include "cpp_peers.h"
#include "ours.h"
#include "parts.h"
#include "python_peers.h"
#include "statistics.h"

namespace holdfast::bench {
namespace {

// What one way to save took, repetition by repetition.
struct Series {
  std::vector<double> durable;
  std::vector<double> blocked;
  std::vector<double> from_call;
};
using All = std::map<std::string, Series>;

struct Turn {
  std::string name;
  std::function<void(Series&)> run;
};

struct PeerGoal {
  const char* name;  // of the turn
  const char* key;
  const char* what;
  double small;  // times as fast, up to 1 GB
  double large;
};
constexpr PeerGoal kPeers[] = {
    {"torch.save", "torch_save_python", "torch.save + fsync, Python", 2.5, 3.8},
    {"torch::save", "torch_save_cpp", "torch::save + fsync, C++", 2.5, 3.8},
    {"safetensors", "safetensors", "safetensors + fsync, Python", 1.8, 4.0},
    {"h5py", "h5py", "h5py + fsync, Python", 4.5, 4.5},
    {"H5Dwrite", "h5dwrite", "H5Dwrite + fsync, C++", 4.5, 4.5},
    {"dcp.save", "dcp_save", "torch.distributed.checkpoint save", 5.5, 5.5},
    {"dcp.async_save", "dcp_async", "the same, async_save", 5.5, 5.5},
    {"dcp.async_save, cached", "dcp_async_cached", "the same, async_save, cached stager", 5.5, 5.5},
};

Section durable_section(const StateSpec& spec, const TrainingState& state, const Ceiling& ceiling,
                        std::uint64_t file_bytes, const All& all) {
  const double best = median(all.at("ceiling").durable);
  const Series& ours = all.at("ours");
  const auto bytes = static_cast<double>(file_bytes);
  const bool large = state.bytes() > 1'000'000'000;
  Section section{.part = "commit",
                  .state = spec.name,
                  .title = spec.name + ", " + state.words() + ": durable write",
                  .rows = {}};
  Row raw =
      share_of_ceiling("durable.ceiling", ceiling.direct() ? "raw O_DIRECT write" : "raw write, buffered",
                       all.at("ceiling").durable, bytes, best);
  raw.of = "(the ceiling)";
  raw.note = "8 MiB blocks by " + std::to_string(ceiling.write_threads()) + " threads (the best of 1, 2, 4)" +
             (ceiling.direct() ? "" : "; this file system refuses O_DIRECT");
  section.rows.push_back(std::move(raw));
  Row mine = share_of_ceiling("durable.holdfast", "Holdfast, with XXH3-128", ours.durable, bytes, best);
  mine.goal = Goal{Goal::Kind::at_least, large ? 0.95 : 0.90};
  // The ceiling is the best that is known, and stands still.
  mine.interval = bootstrap(ours.durable.size(), [&](std::span<const std::size_t> drawn) {
    std::vector<double> seconds;
    for (const std::size_t i : drawn) seconds.push_back(ours.durable[i]);
    return best / median(std::move(seconds));
  });
  mine.note = "Checkpointer, from the staged image to SaveHandle durable; from the call, with the copy: " +
              milliseconds(median(ours.from_call));
  section.rows.push_back(std::move(mine));
  for (const PeerGoal& peer : kPeers) {
    const auto found = all.find(peer.name);
    if (found == all.end()) continue;
    section.rows.push_back(
        share_of_ceiling(std::string("durable.") + peer.key, peer.what, found->second.durable, bytes, best));
  }
  return section;
}

Section against_section(const StateSpec& spec, const TrainingState& state, const All& all) {
  Section section{.part = "commit",
                  .state = spec.name,
                  .title = spec.name + ": how many times as fast durable, Holdfast against",
                  .rows = {}};
  const Series& ours = all.at("ours");
  for (const PeerGoal& peer : kPeers) {
    const auto found = all.find(peer.name);
    if (found == all.end()) continue;
    const double theirs = median(found->second.durable);
    section.rows.push_back(
        {.key = std::string("against.") + peer.key,
         .what = peer.what,
         .value = theirs,
         .text = milliseconds(theirs),
         .of = "times",
         .ratio = theirs / median(ours.durable),
         .goal = Goal{Goal::Kind::at_least, state.bytes() > 1'000'000'000 ? peer.large : peer.small},
         .note = fixed(theirs / median(ours.from_call), 2) + " times when our copy is counted, too"});
  }
  return section;
}

Section blocked_section(const StateSpec& spec, const All& all) {
  const double copy = median(all.at("memcpy").blocked);
  const double inside = median(all.at("ours").blocked);
  const double beside = median(all.at("ours, beside").blocked);
  Section section{.part = "commit",
                  .state = spec.name,
                  .title = spec.name + ": training thread blocked by a save",
                  .rows = {}};
  section.rows.push_back({.key = "blocked.memcpy",
                          .what = "one memcpy of the state, one thread",
                          .value = copy,
                          .text = milliseconds(copy),
                          .samples = all.at("memcpy").blocked});
  section.rows.push_back({.key = "blocked.after_step",
                          .what = "Holdfast, copied inside after_step",
                          .value = inside,
                          .text = milliseconds(inside),
                          .of = "memcpys",
                          .ratio = inside / copy,
                          .goal = Goal{Goal::Kind::at_most, 1.3},
                          .samples = all.at("ours").blocked,
                          .interval = interval_of_ratio(all.at("ours").blocked, all.at("memcpy").blocked)});
  section.rows.push_back(
      {.key = "blocked.before_update",
       .what = "Holdfast, with before_update",
       .value = beside,
       .text = milliseconds(beside),
       .of = "memcpys",
       .ratio = beside / copy,
       .goal = Goal{Goal::Kind::at_most, 0.15},
       .samples = all.at("ours, beside").blocked,
       .note = "after_step and before_update, with a forward and backward pass of batch 64 "
               "at 32x32 between; the part split says what it is made of",
       .interval = interval_of_ratio(all.at("ours, beside").blocked, all.at("memcpy").blocked)});
  const auto against = [&](const char* name, const char* key, const char* what, double goal) {
    const auto found = all.find(name);
    if (found == all.end()) return;
    const double theirs = median(found->second.blocked);
    section.rows.push_back({.key = std::string("blocked.") + key,
                            .what = what,
                            .value = theirs,
                            .text = milliseconds(theirs) + ", " + fixed(theirs / copy, 2) + " memcpys",
                            .of = "ours of theirs",
                            .ratio = beside / theirs,
                            .goal = Goal{Goal::Kind::at_most, goal},
                            .samples = found->second.blocked});
  };
  against("dcp.async_save", "dcp_async", "dcp.async_save, default stager", 0.1);
  against("dcp.async_save, cached", "dcp_async_cached", "dcp.async_save, cached stager", 0.25);
  return section;
}

}  // namespace

void measure_commit(Bench& bench, const StateSpec& spec) {
  TrainingState state(spec);
  require_room(bench.scratch.path(), 6 * state.bytes() + (16u << 20), "the commit part with " + spec.name);
  const auto peer_folder = bench.scratch.folder("peers-" + spec.name);
  std::optional<Ours> ours(std::in_place, state, bench.scratch.path() / ("ours-" + spec.name));
  Ceiling ceiling(bench.scratch.folder("raw-" + spec.name), ours->file_bytes());
  ceiling.choose_threads(bench.options.quick ? 1 : 3);
  std::unique_ptr<PythonPeers> python;
  if (bench.python) python = std::make_unique<PythonPeers>(spec, peer_folder);

  std::vector<Turn> turns;
  turns.push_back({"ceiling", [&](Series& out) { out.durable.push_back(ceiling.write()); }});
  turns.push_back(
      {"memcpy", [&](Series& out) { out.blocked.push_back(state.copy_once(ceiling.buffer().data())); }});
  turns.push_back({"ours", [&](Series& out) {
                     const SaveTimes times = ours->save();
                     out.durable.push_back(times.durable);
                     out.blocked.push_back(times.blocked);
                     out.from_call.push_back(times.from_call);
                   }});
  turns.push_back({"ours, beside", [&](Series& out) {
                     out.blocked.push_back(ours->save_beside_training().blocked);
                     state.drop_gradients();
                   }});
  if (bench.options.peers) {
    turns.push_back(
        {"torch::save", [&](Series& out) { out.durable.push_back(torch_save(state, peer_folder)); }});
    turns.push_back(
        {"H5Dwrite", [&](Series& out) { out.durable.push_back(hdf5_write(state, peer_folder)); }});
  }
  if (python) {
    for (const std::string& method : python->methods()) {
      turns.push_back({method, [&python, method](Series& out) {
                         const PythonPeers::Save times = python->save(method);
                         out.durable.push_back(times.durable);
                         out.blocked.push_back(times.blocked);
                       }});
    }
  }

  All all;
  for (int repetition = -1; repetition < bench.options.repetitions; ++repetition) {  // the first warms up
    bench.progress("commit, " + spec.name, repetition, bench.options.repetitions);
    for (std::size_t i = 0; i < turns.size(); ++i) {
      const Turn& turn = turns[(i + static_cast<std::size_t>(repetition + 1)) % turns.size()];
      settle(bench.scratch.path());
      Series discarded;
      turn.run(repetition < 0 ? discarded : all[turn.name]);
    }
  }
  bench.report.add(durable_section(spec, state, ceiling, ours->file_bytes(), all));
  if (bench.options.peers) bench.report.add(against_section(spec, state, all));
  bench.report.add(blocked_section(spec, all));
}

}  // namespace holdfast::bench
