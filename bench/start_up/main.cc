// From process start to the first finished training step: see --help.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "../shared/median.h"
#include "../shared/program.h"
#include "profile.h"
#include "programs.h"

namespace holdfast::bench { namespace {

constexpr char kHelp[] =
    R"(From process start to the first finished training step: our example against bench/peers/start_up.py,
which does the same work on the same data in Python, both on the CPU. Fresh, and resumed from a checkpoint.
The four programs take turns; printed are medians and our share of the peer's time. bench/peers/install
installs the peer once.

--profile needs no peer. It shows where our time goes, phase by phase, with the page faults of each phase, and
beside it the same phases of the second step. What a first step takes longer than a second one is the most
that it could save.

--gpu needs no peer either. It shows the phases of a resumed start on a GPU (FP16, fused norms): cold, with no
compiled kernel on the disk; warm, on the same machine again; on a new machine, with the kernels that lie
beside the run. --device cpu rehearses it without a GPU, where nothing is compiled and the columns are alike.
)";

void compare(const Programs& programs, int repetitions) {
  std::vector<double> ours_fresh, ours_resumed, peer_fresh, peer_resumed;
  for (int i = 0; i <= repetitions; ++i) {  // the first round warms the page cache
    programs.forget();
    const double fresh = programs.ours(1).seconds, their_fresh = programs.peer().seconds;
    const double resumed = programs.ours(2).seconds, their_resumed = programs.peer().seconds;
    if (i == 0) continue;
    ours_fresh.push_back(fresh);
    peer_fresh.push_back(their_fresh);
    ours_resumed.push_back(resumed);
    peer_resumed.push_back(their_resumed);
  }
  const auto print = [](const char* what, double mine, double theirs) {
    std::printf("%-8s ours %.3f s   Python %.3f s   ratio %.2f\n", what, mine, theirs, mine / theirs);
  };
  std::printf("process start to the first finished step, width %s, medians of %d\n",
              programs.work().width.c_str(), repetitions);
  print("fresh", median(ours_fresh), median(peer_fresh));
  print("resumed", median(ours_resumed), median(peer_resumed));
}

int run(int argc, char** argv) {
  Work work;
  int repetitions = 9;
  bool profile = false;
  bool gpu = false;
  std::string device = "cuda";
  CLI::App app(kHelp, "bench_start_up");
  app.add_option("repetitions", repetitions, "of each program (9)")->check(CLI::Range(1, 1000));
  app.add_option("data", work.data, "a folder of CIFAR-10 (synthetic)");
  app.add_option("width", work.width, "of ResNet-50 (64)");
  app.add_flag("--profile", profile, "where our time goes");
  app.add_flag("--gpu", gpu, "where it goes on a GPU, with caches cold and warm");
  app.add_option("--device", device, "of --gpu: cuda, or cpu for a rehearsal (cuda)")
      ->check(CLI::IsMember({"cuda", "cpu"}));
  CLI11_PARSE(app, argc, argv);
  if (gpu) {
    work.more = {"--channels-last", "--bn", "fused"};
    if (device == "cuda") {
      work.more.insert(work.more.end(), {"--cuda", "--precision", "fp16", "--data-on", "device"});
    }
    print_caches(Programs(work), repetitions);
    return 0;
  }
  const Programs programs(work);
  profile ? print_profile(programs, repetitions) : compare(programs, repetitions);
  return 0;
}

}}  // namespace holdfast::bench

int main(int argc, char** argv) {
  return holdfast::bench::ended_by("bench_start_up", [&] { return holdfast::bench::run(argc, argv); });
}
