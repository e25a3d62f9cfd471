#include "holdfast/cli/commands/doctor_checks.h"

#include <sys/timex.h>

#include <array>
#include <csignal>
#include <cstdint>
#include <fstream>
#include <optional>
#include <sstream>
#include <utility>

#include "holdfast/base/env.h"
#include "holdfast/base/error.h"
#include "holdfast/base/system/loaded_library.h"
#include "holdfast/base/text.h"
#include "holdfast/interruption/cloud_providers.h"
#include "holdfast/interruption/term_grace.h"
#include "holdfast/io/volume_report.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using enum Finding::Verdict;
namespace fs = std::filesystem;

std::string first_line(const fs::path& file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  return line;
}

std::string text_of(const fs::path& file) {
  std::ostringstream text;
  text << std::ifstream(file, std::ios::binary).rdbuf();
  return text.str();
}

bool is_there(const fs::path& file) {
  std::error_code error;
  return fs::exists(file, error);
}

// From version.py, as in the wheel, or from build-version, as in LibTorch's archive.
std::string libtorch_version(const fs::path& root) {
  std::ifstream file(root / "version.py");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("__version__")) continue;
    const std::size_t from = line.find_first_of("'\"");
    const std::size_t to = line.find_last_of("'\"");
    if (from < to) return line.substr(from + 1, to - from - 1);
  }
  return first_line(root / "build-version");
}

// 12080 is 12.8.
std::string cuda_version(int number) {
  return std::to_string(number / 1000) + '.' + std::to_string(number % 1000 / 10);
}

// By the place on the bus: NVML counts all GPUs, CUDA those of CUDA_VISIBLE_DEVICES, and in another order.
std::string mig_text(const LoadedLibrary& driver, const LoadedLibrary& nvml, int device) {
  const auto place_of = driver.function<int(char*, int, int)>("cuDeviceGetPCIBusId");
  const auto find = nvml.function<int(const char*, void**)>("nvmlDeviceGetHandleByPciBusId_v2");
  const auto mode = nvml.function<int(void*, unsigned int*, unsigned int*)>("nvmlDeviceGetMigMode");
  std::array<char, 32> place{};
  void* found = nullptr;
  unsigned int now = 0;
  unsigned int next = 0;
  if (place_of == nullptr || find == nullptr || mode == nullptr) return {};
  if (place_of(place.data(), place.size(), device) != 0 || find(place.data(), &found) != 0) return {};
  return mode(found, &now, &next) == 0 && now == 1 ? ", MIG is on" : "";
}

// By the driver's own functions: they need no CUDA toolkit, and without a context they take no memory of a
// device.
void add_gpus(const LoadedLibrary& driver, std::vector<Finding>& findings) {
  const auto initialize = driver.function<int(unsigned int)>("cuInit");
  const auto count_of = driver.function<int(int*)>("cuDeviceGetCount");
  const auto device_of = driver.function<int(int*, int)>("cuDeviceGet");
  const auto name_of = driver.function<int(char*, int, int)>("cuDeviceGetName");
  // The symbol without _v2 counts bytes in 32 bits.
  const auto memory_of = driver.function<int(std::size_t*, int)>("cuDeviceTotalMem_v2");
  int count = 0;
  const int code = initialize != nullptr ? initialize(0) : -1;
  if (code != 0 || count_of == nullptr || count_of(&count) != 0) {
    findings.push_back(
        {failed, "GPU", "the driver does not start (error " + std::to_string(code) + ")",
         "look at `nvidia-smi` and the kernel's log; the container may lack the device files"});
    return;
  }
  if (count == 0) {
    findings.push_back({warning, "GPU", "the driver shows none", "look at CUDA_VISIBLE_DEVICES"});
  }
  const LoadedLibrary nvml("libnvidia-ml.so.1");
  const auto nvml_start = nvml.function<int()>("nvmlInit_v2");
  const bool tells_mig = nvml_start != nullptr && nvml_start() == 0;
  for (int index = 0; index < count; ++index) {
    int device = 0;
    std::array<char, 100> name{};
    std::size_t memory = 0;
    if (device_of == nullptr || name_of == nullptr || memory_of == nullptr || device_of(&device, index) != 0)
      continue;
    // One byte less, so that a name that fills the array still ends.
    name_of(name.data(), name.size() - 1, device);
    memory_of(&memory, device);
    findings.push_back({ok,
                        "GPU",
                        std::to_string(index) + ": " + name.data() + ", " + format_bytes(memory) +
                            (tells_mig ? mig_text(driver, nvml, device) : ""),
                        {}});
  }
}

void add_nccl(const fs::path& libtorch, std::vector<Finding>& findings) {
  // As the loader finds it first, then where wheels put it.
  for (const std::string& name :
       {std::string("libnccl.so.2"), (libtorch / "nvidia/nccl/lib/libnccl.so.2").string(),
        (libtorch / "../nvidia/nccl/lib/libnccl.so.2").lexically_normal().string()}) {
    const LoadedLibrary nccl(name);
    const auto version_of = nccl.function<int(int*)>("ncclGetVersion");
    int version = 0;
    if (version_of == nullptr || version_of(&version) != 0) continue;
    findings.push_back({ok,
                        "NCCL",
                        std::to_string(version / 10000) + '.' + std::to_string(version / 100 % 100) + '.' +
                            std::to_string(version % 100),
                        {}});
    return;
  }
  findings.push_back({warning, "NCCL", "not found", "give --libtorch DIR; only several GPUs need it"});
}

}  // namespace

std::vector<Finding> check_libtorch(const fs::path& directory) {
  const fs::path root = is_there(directory / "torch/lib") ? directory / "torch" : directory;
  if (!is_there(root / "lib/libtorch_cpu.so")) {
    return {{failed, "LibTorch", "there is no lib/libtorch_cpu.so in " + directory.string(),
             "give --libtorch the folder with include/ and lib/"}};
  }
  const std::string version = libtorch_version(root);
  std::vector<Finding> findings;
  const std::string text = (version.empty() ? "version unknown" : version) + " in " + root.string() +
                           (is_there(root / "lib/libtorch_cuda.so") ? ", with CUDA" : ", without CUDA");
  findings.push_back({ok, "LibTorch", text, {}});
  // std::__cxx11::basic_string in a mangled name, which the older ABI does not have.
  if (text_of(root / "lib/libc10.so").find("St7__cxx1112basic_string") == std::string::npos) {
    findings.push_back({failed, "ABI", "this LibTorch has the C++ ABI from before g++ 5",
                        "take the wheel of 2.10 or later, or the archive named cxx11-abi"});
  } else {
    findings.push_back({ok, "ABI", "the C++11 ABI, as Holdfast is built", {}});
  }
  return findings;
}

std::vector<Finding> check_gpus(const fs::path& libtorch) {
  const LoadedLibrary driver("libcuda.so.1");
  if (!driver.loaded()) {
    // The kernel module makes this file, so it tells a missing GPU from a container without the driver's
    // libraries.
    if (!is_there("/dev/nvidiactl")) return {{ok, "driver", "no NVIDIA driver: training uses the CPU", {}}};
    return {{failed, "driver", "there is a GPU (/dev/nvidiactl), but libcuda.so.1 cannot be loaded",
             "start the container with the NVIDIA runtime, or install the driver's libraries"}};
  }
  std::vector<Finding> findings;
  int version = 0;
  const auto version_of = driver.function<int(int*)>("cuDriverGetVersion");
  if (version_of != nullptr && version_of(&version) == 0) {
    findings.push_back({ok, "driver", "supports CUDA up to " + cuda_version(version), {}});
  }
  add_gpus(driver, findings);
  add_nccl(libtorch, findings);
  return findings;
}

std::vector<Finding> check_libraries() {
  // The library loads it at run time, so a build says nothing about this machine.
  if (LoadedLibrary("libcurl.so.4").loaded()) return {{ok, "libcurl", "metadata services can be asked", {}}};
  return {{warning, "libcurl", "libcurl.so.4 cannot be loaded: no metadata service is asked for notices",
           "apt-get install libcurl4"}};
}

std::vector<Finding> check_metadata_service(Clock& clock, const fs::path& system_root) {
  const std::string sources = env_text(kEnvSources).value_or("cloud");
  const auto asks = [&](std::string_view name) { return sources.find(name) != std::string::npos; };
  const auto providers = cloud_providers();
  if (!asks("cloud") && std::none_of(providers.begin(), providers.end(),
                                     [&](const CloudProvider& provider) { return asks(provider.name); })) {
    return {{ok, "notices", "HOLDFAST_SOURCES names no metadata service: none is asked", {}}};
  }
  const CloudProvider* const provider = detect_cloud(system_root);
  if (provider == nullptr) {
    return {{ok,
             "notices",
             "this machine's firmware names none of " + provider_companies() +
                 "; signals and notice files are heard",
             {}}};
  }
  const std::string name(provider->company);
  const auto source = make_cloud_source(*provider, clock);
  if (source == nullptr) {
    return {{warning, "notices", name + "'s metadata service is switched off (" + provider->off->name + ")",
             "unset that variable"}};
  }
  // One question by the code that a run asks with, so the answer holds for a run.
  source->poll();
  const SourceFigures figures = source->figures();
  if (figures.failures == 0) return {{ok, "notices", name + "'s metadata service answers", {}}};
  return {{failed, "notices", name + "'s metadata service does not answer: " + figures.why,
           "let this process reach " + metadata_endpoint(*provider) +
               "; in a container EC2 needs a hop limit of 2"}};
}

std::vector<Finding> check_volume(const fs::path& directory) {
  constexpr std::uint64_t kBytes = 64 << 20;
  std::vector<Finding> findings;
  try {
    const VolumeReport report = probe_volume(FileSystem::real(), directory, {.bytes = kBytes});
    for (const VolumeRemark& remark : explain(report)) {
      const bool warns = remark.weight == VolumeRemark::Weight::warning;
      const Finding::Verdict verdict = !warns ? ok : report.fit() ? warning : failed;
      findings.push_back({verdict, "volume", remark.text, warns ? "`holdfast probe` says more" : ""});
    }
  } catch (const Error& error) {
    findings.push_back({failed, "volume", error.what(), "mount the volume, or name another directory"});
  }
  return findings;
}

std::vector<Finding> check_clock() {
  timex status{};
  // The kernel itself knows whether something disciplines its clock.
  // Without a mode it only reads, and needs no privilege.
  const int state = adjtimex(&status);
  if (state >= 0 && state != TIME_ERROR) return {{ok, "clock", "synchronised", {}}};
  return {{warning, "clock",
           "nothing synchronises it: times in logs and reports may be wrong, no decision is",
           "start chrony or systemd-timesyncd; in a container the host does it"}};
}

std::vector<Finding> check_limits(const fs::path& system_root) {
  const fs::path cgroup = system_root / "sys/fs/cgroup";
  std::string memory = first_line(cgroup / "memory.max");
  // Version 2 of control groups first, then version 1.
  if (memory.empty()) memory = first_line(cgroup / "memory/memory.limit_in_bytes");
  const auto bytes = parse_int(memory);
  constexpr std::int64_t kNone = std::int64_t{1}
                                 << 60;  // the first version's word for "no limit" is about 2^63
  std::vector<Finding> findings;
  if (bytes && *bytes < kNone) {
    findings.push_back({ok,
                        "memory",
                        "the control group allows " + format_bytes(static_cast<std::uint64_t>(*bytes)) +
                            "; a run needs one more copy of its state in it",
                        {}});
  } else {
    findings.push_back({ok, "memory", "no limit of a control group", {}});
  }
  std::istringstream cpu(first_line(cgroup / "cpu.max"));
  std::string quota;
  double period = 0;
  cpu >> quota >> period;
  // Without a quota the first word is "max".
  if (const auto time = parse_double(quota); time && period > 0) {
    const double cores = *time / period;
    findings.push_back({cores < 1 ? warning : ok, "CPU",
                        "the control group allows " + format_number(cores) + " cores",
                        cores < 1 ? "give at least one core: writing and hashing need it" : ""});
  }
  return findings;
}

std::vector<Finding> check_signals(const fs::path& system_root) {
  constexpr std::array<std::pair<int, const char*>, 4> kHeard{
      {{SIGTERM, "SIGTERM"}, {SIGINT, "SIGINT"}, {SIGUSR1, "SIGUSR1"}, {SIGHUP, "SIGHUP"}}};
  std::ifstream file(system_root / "proc/self/status");
  // exec keeps an ignored signal ignored, so a run that this parent starts would not hear it.
  std::uint64_t ignored = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("SigIgn:")) ignored = std::strtoull(line.c_str() + 7, nullptr, 16);
  }
  std::string names;
  for (const auto& [number, name] : kHeard) {
    // Bit N - 1 stands for signal N.
    if ((ignored >> (number - 1) & 1) != 0) names += (names.empty() ? "" : ", ") + std::string(name);
  }
  if (names.empty()) return {{ok, "signals", "the parent ignores none that stops a run", {}}};
  if (names == "SIGHUP") return {{ok, "signals", "the parent ignores SIGHUP, as nohup does", {}}};
  return {{warning, "signals", "the parent ignores " + names + ", and so would a run",
           "start it from a shell or service that does not (`trap '' TERM` ignores)"}};
}

std::vector<Finding> check_grace(const fs::path& system_root) {
  try {
    const TermGrace grace = term_grace({}, system_root);
    const std::string text = format_duration(grace.time) + " from SIGTERM to the end";
    if (!grace.guessed) return {{ok, "grace", text, {}}};
    return {{warning, "grace", text + ", a guess", "set HOLDFAST_TERM_GRACE to what the platform gives"}};
  } catch (const Error& error) {
    return {{failed, "grace", error.what(), "set HOLDFAST_TERM_GRACE to a time such as 25s"}};
  }
}

}}  // namespace holdfast::v0_2
