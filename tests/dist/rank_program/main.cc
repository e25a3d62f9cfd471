// One rank of a training: dist_rank SCENARIO [FOLDER]. Says what it saw on standard output; how it ends is
// what the tests look at. Folders are the test's, to wait for each other in.
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "dist/rank_program/loops.h"
#include "holdfast/base/error.h"
#include "holdfast/base/last_words.h"
#include "holdfast/base/log.h"
#include "holdfast/snapshot/digest.h"
#include "unit/state/attributes_only.h"

namespace holdfast::test { namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr std::array kSettings{
    Setting{},
    Setting{.name = "micro", .steps = 20, .micro_batches = 3},
    Setting{.name = "buffers", .steps = 20, .micro_batches = 2, .buffers = true},
    Setting{.name = "unused", .steps = 20, .unused = true},
    Setting{.name = "fp16", .steps = 20, .compression = GradientCompression::fp16, .type = c10::kFloat},
    Setting{.name = "bf16", .steps = 20, .compression = GradientCompression::bf16, .type = c10::kFloat}};

std::string digest(const std::string& bytes) { return to_hex(digest_of(std::as_bytes(std::span(bytes)))); }

void write_file(const fs::path& file, const std::string& text) {
  std::ofstream(file.string() + ".new", std::ios::binary) << text;
  fs::rename(file.string() + ".new", file);
}

// Longer than several starts of LibTorch one after another take on a busy machine.
void wait_for(const fs::path& file) {
  for (int i = 0; i < 24'000 && !fs::exists(file); ++i) std::this_thread::sleep_for(10ms);
  if (!fs::exists(file)) throw std::runtime_error("waited in vain for " + file.string());
}

void say(const std::string& line) {
  std::puts(line.c_str());
  std::fflush(stdout);
}

// SETTING DIGEST-OF-OURS DIGEST-OF-PLAIN, and the first setting's parameters in the folder.
void compare(ProcessGroup& group, const fs::path& folder) {
  for (const Setting& setting : kSettings) {
    Net ours(setting, 7 + group.rank());  // rank 0's parameters count
    {
      DataParallel parallel(ours, group, options_of(setting));
      for (int step = 0; step < setting.steps; ++step) train_step(ours, parallel, group, setting, step);
      if (!setting.buffers) parallel.verify();
    }
    std::string plain = "none";
    if (!group.alone() && setting.compression != GradientCompression::bf16) {
      Net net(setting, 7 + group.rank());
      train_plainly(net, group, setting);
      plain = digest(bytes_of(net, true));
    }
    say(std::string(setting.name) + " " + digest(bytes_of(ours, true)) + " " + plain + " " +
        digest(bytes_of(ours)));
    if (group.rank() == 0) write_file(folder / setting.name, bytes_of(ours));
  }
}

// Ten steps in one go, and with a new DataParallel in the middle: with the recorded order, and with another
// one, in which all gradients are one bucket: Gloo's ring begins each third of a bucket's sum with another
// rank.
void resume(ProcessGroup& group) {
  const Setting setting{.name = "resume", .steps = 10, .type = c10::kFloat};
  DataParallelOptions one_bucket = options_of(setting);
  one_bucket.first_bucket_bytes = one_bucket.bucket_bytes = 1 << 20;
  const auto train = [&](int stop, bool keeps_order) {
    Net net(setting, 3);
    AttributesOnly kept;
    for (int begin = 0; begin < setting.steps;) {
      DataParallel parallel(net, group, begin == 0 || keeps_order ? options_of(setting) : one_bucket);
      if (begin > 0 && keeps_order) parallel.load(kept);
      const int end = begin == 0 ? stop : setting.steps;
      for (int step = begin; step < end; ++step) train_step(net, parallel, group, setting, step);
      parallel.save(kept);
      begin = end;
    }
    return bytes_of(net);
  };
  const std::string whole = train(setting.steps, true);
  for (const int stop : {1, 2, 9})
    say("resumed " + std::to_string(stop) + " " + (train(stop, true) == whole ? "same" : "other"));
  // The numbers are fixed: 45 of 4,181 parameters differ, in every run.
  const std::string other = train(4, false);
  say(std::string("regrouped ") + (other == whole ? "same" : "other"));
}

// Five steps; then `at_step_5` on one rank, and on with all of them.
template <class Then>
void train_on(ProcessGroup& group, int rank, const Then& at_step_5) {
  // The launcher's, once a rank is lost: here it is about what the others find out by themselves.
  signal(SIGTERM, SIG_IGN);
  const Setting setting;
  Net net(setting, 1);
  DataParallel parallel(net, group, options_of(setting));
  for (int step = 0; step < 1000; ++step) {
    if (step == 5 && group.rank() == rank) at_step_5();
    train_step(net, parallel, group, setting, step);
  }
}

// A second DataParallel over the same group; its errors leave the group as it is.
void mistakes(ProcessGroup& group) {
  const auto refusal = [](const auto& work) -> std::string {
    try {
      work();
    } catch (const UsageError& error) {
      return error.what();
    } catch (const RefusedError& error) {
      return error.what();
    }
    return "not refused";
  };
  const Setting own{.hidden = group.rank() == 1 ? 50 : 48};
  Net other(own, 1);
  say("shape: " + refusal([&] { DataParallel(other, group); }));
  Net frozen(Setting{}, 1);
  if (group.rank() == 1) frozen.first->bias.requires_grad_(false);
  say("frozen: " + refusal([&] { DataParallel(frozen, group); }));
  const Setting buffers{.buffers = group.rank() == 1};
  Net more(buffers, 1);
  say("more: " + refusal([&] { DataParallel(more, group); }));
  Net net(Setting{}, 1);
  DataParallel parallel(net, group, options_of(Setting{}));
  {
    const c10::NoGradGuard no_grad;
    if (group.rank() == 1) net.last->bias.add_(1e-9);
  }
  say("drift: " + refusal([&] { parallel.verify(); }));
  AttributesOnly kept;
  kept.put("buckets", std::vector<std::int64_t>{2, 0, 1, 1, 1, 3, 3, 4, 5});
  say("order: " + refusal([&] { parallel.load(kept); }));
  Setting leaves_out{.unused = true};
  Net part(leaves_out, 1);
  DataParallelOptions options = options_of(leaves_out);
  options.find_unused = false;
  DataParallel incomplete(part, group, options);
  train_step(part, incomplete, group, leaves_out, 0);
  say("unused: " + refusal([&] { train_step(part, incomplete, group, leaves_out, 1); }));
}

// In the place of torchrun's agent: keeps the store that the ranks meet at.
int keep_store(const fs::path& folder) {
  const auto store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", [] {
    c10d::TCPStoreOptions options;
    options.port = 0;
    options.isServer = true;
    options.waitWorkers = false;
    return options;
  }());
  write_file(folder / "port", std::to_string(store->getPort()));
  wait_for(folder / "over");
  return 0;
}

// This rank lives and never comes to the collective in which the others wait.
// Its name is looked for in stacks.
[[noreturn, gnu::noinline]] void stay_away(const fs::path& folder) {
  write_file(folder / "away", "");
  for (;;) std::this_thread::sleep_for(1s);
}

int run(const std::string& scenario, const fs::path& folder) {
  if (scenario == "agent") return keep_store(folder);
  GroupOptions options{.start_timeout = 5min};
  // Of the start and the first steps, too, which a busy machine holds up.
  if (scenario.starts_with("hang")) options.timeout = 20s;
  if (scenario == "late") {
    options.start_timeout = 5s;
    if (options.place.rank == 1) wait_for(folder / "never");
  }
  if (scenario == "first") {
    if (options.place.rank == 0) {
      write_file(folder / "job", options.place.job);
      write_file(folder / "port", std::to_string(options.place.master_port));
    }
    if (options.place.rank + 1 == options.place.world_size) wait_for(folder / "second is over");
  }
  ProcessGroup group(options);
  if (scenario == "compare") compare(group, folder);
  if (scenario == "resume") resume(group);
  if (scenario == "mistakes") mistakes(group);
  if (scenario == "first" || scenario == "second") say("met");
  if (scenario == "dies") train_on(group, 1, [] { raise(SIGKILL); });
  if (scenario == "zero dies") train_on(group, 0, [] { raise(SIGKILL); });
  if (scenario == "throws") train_on(group, 1, [] { throw std::runtime_error("my own mistake"); });
  if (scenario == "hangs") train_on(group, 1, [] { raise(SIGSTOP); });
  if (scenario == "waits") train_on(group, 0, [&] { stay_away(folder); });
  if (scenario == "hangs at zero") train_on(group, 0, [] { raise(SIGSTOP); });
  group.leave();
  return 0;
}

}}  // namespace holdfast::test

int main(int argc, char** argv) {
  using namespace holdfast::test;
  return holdfast::run([&] { return run(argc > 1 ? argv[1] : "", argc > 2 ? argv[2] : "."); });
}
