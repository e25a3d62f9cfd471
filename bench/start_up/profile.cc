#include "profile.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <numeric>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "../shared/median.h"
#include "holdfast/base/error.h"

namespace holdfast::bench {
namespace {

namespace fs = std::filesystem;

// What the example says of itself (examples/resnet50_cifar10/start_log.h) is the end of a phase.
constexpr std::string_view kLine = "debug: start: ";
constexpr std::string_view kBeside = "reading";  // ends on another thread
constexpr std::string_view kStepEnds = "update";

struct Phase {
  std::string_view name;
  const char* what;
};
constexpr Phase kPhases[] = {{"main", "exec, and libraries, until main()"},
                             {"options", "options"},
                             {"checkpointer", "checkpointer; its reading begins beside"},
                             {"model", "model"},
                             {"pictures", "waiting for the pictures, read beside"},
                             {"loaders", "loaders: the data's fingerprints"},
                             {"resume", "state: described, resumed"},
                             {"batch", "batch"},
                             {"forward", "forward"},
                             {"backward", "backward"},
                             {"update", "update"}};
constexpr std::size_t kStart = 7;  // phases before the first step
constexpr std::size_t kAll = std::size(kPhases);

struct Mark {
  std::string name = {};
  double at = 0;  // seconds of the steady clock
  double page_faults = 0;
};

// One start: what each phase took.
struct Profile {
  double seconds[kAll] = {};
  double page_faults[kAll] = {};
  double again[kAll] = {};  // in the second step; seconds
  double faults_again[kAll] = {};
  double read = 0;    // pictures; seconds after the start
  double loader = 0;  // dynamic loader; seconds
  double relocation = 0;
};

std::vector<Mark> marks_in(std::istream& log) {
  std::vector<Mark> marks;
  for (std::string line; std::getline(log, line);) {
    const auto at = line.find(kLine);
    if (at == std::string::npos) continue;
    std::istringstream words(line.substr(at + kLine.size()));
    Mark mark;
    std::string unit;
    if (words >> mark.name >> mark.at >> unit >> mark.page_faults) marks.push_back(mark);
  }
  return marks;
}

// Of the dynamic loader's own clock.
std::uint64_t cycles_now() {
#ifdef __x86_64__
  return __builtin_ia32_rdtsc();
#else
  return 0;  // not known here: its rows are left out
#endif
}

// "words: 123 cycles" in LD_DEBUG=statistics; the first one is of the start.
double number_after(const std::string& text, const std::string& words) {
  const auto at = text.find(words + ": ");
  return at == std::string::npos ? 0 : std::atof(text.c_str() + at + words.size() + 2);
}

std::string taken(const fs::path& folder, std::string_view beginning) {
  std::ostringstream text;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (!entry.path().filename().string().starts_with(beginning)) continue;
    text << std::ifstream(entry.path()).rdbuf();
    fs::remove(entry.path());
  }
  return text.str();
}

void add_loader(Profile& profile, const std::string& statistics, double cycles_a_second) {
  if (!(cycles_a_second > 0)) return;
  profile.loader = number_after(statistics, "total startup time in dynamic loader") / cycles_a_second;
  profile.relocation = number_after(statistics, "time needed for relocation") / cycles_a_second;
}

// Two steps after the start.
Profile profile_of(const Programs& programs, int last_step, const std::string& settings = {}) {
  const std::uint64_t cycles = cycles_now();
  const Start start =
      programs.ours(last_step, "export HOLDFAST_LOG=debug LD_DEBUG=statistics LD_DEBUG_OUTPUT=" +
                                   (programs.folder() / "loader").string() + settings);
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start.begin;
  Profile profile;
  add_loader(profile, taken(programs.folder(), "loader."),
             static_cast<double>(cycles_now() - cycles) / passed.count());
  Mark before{.at = std::chrono::duration<double>(start.begin.time_since_epoch()).count()};
  const double begin = before.at;
  std::size_t next = 0;
  std::ifstream log(programs.errors());
  for (const Mark& mark : marks_in(log)) {
    if (mark.name == kBeside) {
      profile.read = mark.at - begin;
      continue;
    }
    const bool second = next >= kAll;
    const std::size_t phase = second ? next - kAll + kStart : next;
    if (phase >= kAll || mark.name != kPhases[phase].name) throw Error("the example tells other phases");
    (second ? profile.again : profile.seconds)[phase] = mark.at - before.at;
    (second ? profile.faults_again : profile.page_faults)[phase] = mark.page_faults - before.page_faults;
    before = mark;
    ++next;
  }
  if (next != 2 * kAll - kStart) throw Error("the example did not tell its phases (HOLDFAST_LOG=debug)");
  return profile;
}

// Kernels (code) that oneDNN makes up to the end of the first step.
struct Kernels {
  int count = 0;
  double seconds = 0;
};
Kernels kernels_of(const Programs& programs, int last_step) {
  programs.ours(last_step, "export HOLDFAST_LOG=debug ONEDNN_VERBOSE=profile_create");
  Kernels kernels;
  std::string last(kLine);
  last += kStepEnds;
  std::ifstream log(programs.errors());
  for (std::string line; std::getline(log, line);) {
    if (line.find(last) != std::string::npos) break;
    if (line.find("create:cache_miss") == std::string::npos) continue;
    ++kernels.count;
    kernels.seconds += std::atof(line.c_str() + line.rfind(',') + 1) / 1e3;
  }
  return kernels;
}

void print(const char* kind, const Programs& programs, const std::vector<Profile>& profiles,
           const Kernels& kernels) {
  const auto middle = [&](const std::function<double(const Profile&)>& figure) {
    std::vector<double> values;
    for (const Profile& profile : profiles) values.push_back(figure(profile));
    return median(values);
  };
  double all = 0, all_faults = 0, longer = 0, more_faults = 0;
  for (std::size_t i = 0; i < kAll; ++i) {
    all += middle([i](const Profile& one) { return one.seconds[i]; });
  }
  const auto part = [&](const char* what, double seconds) {
    if (seconds > 0) std::printf("  %-40s %7.0f %6.0f %%\n", what, seconds * 1e3, 100 * seconds / all);
  };
  std::printf("\n%s start, width %s, medians of %zu\n%-42s %7s %8s %11s %15s\n", kind,
              programs.work().width.c_str(), profiles.size(), "phase", "ms", "share", "page faults",
              "second step, ms");
  for (std::size_t i = 0; i < kAll; ++i) {
    const double seconds = middle([i](const Profile& one) { return one.seconds[i]; });
    const double faults = middle([i](const Profile& one) { return one.page_faults[i]; });
    const double again = middle([i](const Profile& one) { return one.again[i]; });
    all_faults += faults;
    std::printf("%-42s %7.0f %6.0f %% %11.0f", kPhases[i].what, seconds * 1e3, 100 * seconds / all, faults);
    i < kStart ? std::printf("\n") : std::printf(" %15.0f\n", again * 1e3);
    if (i >= kStart) {
      longer += seconds - again;
      more_faults += faults - middle([i](const Profile& one) { return one.faults_again[i]; });
    }
    if (i != 0) continue;
    const double loader = middle([](const Profile& one) { return one.loader; });
    part("of it the dynamic loader", loader);
    part("  of it relocations", middle([](const Profile& one) { return one.relocation; }));
    part("of it static initialisers", loader > 0 ? seconds - loader : 0);
  }
  std::printf("%-42s %7.0f %6d %% %11.0f\n", "all", all * 1e3, 100, all_faults);
  std::printf("beside: the pictures were read after %.0f ms\n",
              1e3 * middle([](const Profile& one) { return one.read; }));
  std::printf(
      "the first step takes %.0f ms longer than the second (%.0f %%): oneDNN makes %d kernels in %.0f ms; "
      "%.0f "
      "page faults more\n",
      longer * 1e3, 100 * longer / all, kernels.count, kernels.seconds * 1e3, more_faults);
}

// Where a process finds what earlier ones have compiled: Holdfast's kernels, the driver's, LibTorch's own.
class Caches {
 public:
  explicit Caches(const Programs& programs)
      : machine_(programs.folder() / "machine"), beside_(programs.folder() / "run" / "kernels") {}
  void another_machine() const { fs::remove_all(machine_); }
  void another_run() const { fs::remove_all(beside_); }
  // A loss that is learnt at once ends a step when the device has ended it.
  std::string settings() const {
    return " HOLDFAST_LATE_RESULTS=0 XDG_CACHE_HOME=" + machine_.string() +
           " CUDA_CACHE_PATH=" + (machine_ / "driver").string() +
           " PYTORCH_KERNEL_CACHE_PATH=" + (machine_ / "torch").string() +
           " HOLDFAST_KERNEL_CACHE=" + beside_.string();
  }
  int kept_beside() const {
    std::error_code none;
    const fs::directory_iterator files(beside_, none);
    return none ? 0 : static_cast<int>(std::distance(begin(files), end(files)));
  }

 private:
  const fs::path machine_;
  const fs::path beside_;
};

}  // namespace

void print_profile(const Programs& programs, int repetitions) {
  constexpr int kFresh = 2, kResumed = 4;  // last steps
  std::vector<Profile> fresh, resumed;
  Kernels fresh_kernels, resumed_kernels;
  for (int i = 0; i <= repetitions; ++i) {  // the first round warms the page cache
    programs.forget();
    if (i == 0) {
      fresh_kernels = kernels_of(programs, kFresh);
      resumed_kernels = kernels_of(programs, kResumed);
      continue;
    }
    fresh.push_back(profile_of(programs, kFresh));
    resumed.push_back(profile_of(programs, kResumed));
  }
  print("fresh", programs, fresh, fresh_kernels);
  print("resumed", programs, resumed, resumed_kernels);
}

void print_caches(const Programs& programs, int repetitions) {
  const Caches caches(programs);
  std::vector<Profile> cold, warm, beside;
  programs.forget();
  int last_step = 0;
  const auto next = [&] { return profile_of(programs, last_step += 2, caches.settings()); };
  next();
  for (int i = 0; i < repetitions; ++i) {
    caches.another_machine();
    caches.another_run();
    cold.push_back(next());
    warm.push_back(next());
    caches.another_machine();
    beside.push_back(next());
  }
  std::printf("\nresumed start, width %s, medians of %d; ms\n%-42s %12s %12s %12s\n",
              programs.work().width.c_str(), repetitions, "phase", "cold", "warm", "new machine");
  const auto row = [&](const char* what, const std::function<double(const Profile&)>& figure) {
    std::printf("%-42s", what);
    for (const auto* const kind : {&cold, &warm, &beside}) {
      std::vector<double> values;
      for (const Profile& profile : *kind) values.push_back(figure(profile));
      std::printf(" %12.0f", median(values) * 1e3);
    }
    std::printf("\n");
  };
  for (std::size_t i = 0; i < kAll; ++i) {
    row(kPhases[i].what, [i](const Profile& one) { return one.seconds[i]; });
  }
  row("what the first step takes longer", [](const Profile& one) {
    double longer = 0;
    for (std::size_t i = kStart; i < kAll; ++i) longer += one.seconds[i] - one.again[i];
    return longer;
  });
  std::printf("kept beside the run: %d kernels\n", caches.kept_beside());
  row("all", [](const Profile& one) { return std::accumulate(one.seconds, one.seconds + kAll, 0.0); });
}

}  // namespace holdfast::bench
