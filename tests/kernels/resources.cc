// kernel_resources [--nvrtc FILE] ARCHITECTURE…
//
// Compiles every kernel that Holdfast can launch for these compute capabilities (75 80 90 …), with NVRTC (in FILE, or
// where the library searches it) and without a GPU. Prints "ok sm_90 KERNEL …" with what a thread and a block take, or "not ok …" with what is
// wrong: it does not compile, it spills registers or keeps data in local memory, or a multiprocessor has no room for
// the blocks that the kernel's launch bounds promise. tests/kernels/run is the caller.
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "holdfast/kernels/compiler.h"
#include "holdfast/kernels/internal/nvrtc.h"
#include "holdfast/kernels/kernel.h"

namespace {

using holdfast::kernels::Compiled;
using holdfast::kernels::Source;

// What the hardware has for the blocks of one multiprocessor: 64 Ki registers everywhere; shared memory in bytes, of
// which the driver keeps 1 KiB a block from 8.0 on (CUDA C++ Programming Guide, "Compute Capabilities").
constexpr int kRegisters = 65536, kRegistersOfAThread = 255, kSharedOfABlock = 48 << 10, kReserved = 1 << 10;
const std::map<int, int> kSharedMemory = {{70, 96 << 10},   {75, 64 << 10},  {80, 164 << 10},
                                          {86, 100 << 10},  {89, 100 << 10}, {90, 228 << 10},
                                          {100, 228 << 10}, {120, 100 << 10}};

struct Bounds {
  int threads = 0, blocks = 0;
};
struct Use {
  int registers = 0, shared = 0, stack = 0, spills = 0;
};

// The number that follows the last `before`, or precedes the first `after`, in `text`.
std::optional<int> number_before(const std::string& text, const std::string& after) {
  const std::size_t end = text.find(after);
  if (end == std::string::npos) return std::nullopt;
  std::size_t begin = end;
  while (begin > 0 && std::isdigit(static_cast<unsigned char>(text[begin - 1])) != 0) --begin;
  if (begin == end) return std::nullopt;
  return std::stoi(text.substr(begin, end - begin));
}

std::string part_of(const std::string& text, const std::string& from, const std::string& to) {
  const std::size_t begin = text.find(from);
  if (begin == std::string::npos) return "";
  const std::size_t end = text.find(to, begin + from.size());
  return text.substr(begin, end == std::string::npos ? end : end - begin);
}

// Launch bounds as PTX has them: ".maxntid 256" and ".minnctapersm 2" behind a kernel's parameters.
std::optional<Bounds> bounds_in(const std::string& ptx, const std::string& symbol) {
  const std::string head = part_of(ptx, ".entry " + symbol + "(", "{");
  Bounds bounds;
  if (std::sscanf(part_of(head, ".maxntid", "\n").c_str(), ".maxntid %d", &bounds.threads) != 1)
    return std::nullopt;
  if (std::sscanf(part_of(head, ".minnctapersm", "\n").c_str(), ".minnctapersm %d", &bounds.blocks) != 1) {
    return std::nullopt;
  }
  return bounds;
}

// From the report that ptxas makes of each kernel (--ptxas-options=-v).
std::optional<Use> use_in(const std::string& log, const std::string& symbol) {
  const std::string of = "Compiling entry function '";
  const std::string report = part_of(log, of + symbol + "'", of);
  const auto registers = number_before(report, " registers"),
             stack = number_before(report, " bytes stack frame");
  const auto stores = number_before(report, " bytes spill stores"),
             loads = number_before(report, " bytes spill loads");
  if (!registers || !stack || !stores || !loads) return std::nullopt;
  return Use{.registers = *registers,
             .shared = number_before(report, " bytes smem").value_or(0),
             .stack = *stack,
             .spills = *stores + *loads};
}

std::vector<std::string> wrong_with(const Use& use, const Bounds& bounds, int architecture) {
  std::vector<std::string> wrong;
  const auto say = [&](const std::string& what) { wrong.push_back(what); };
  if (use.spills != 0) say("spills " + std::to_string(use.spills) + " bytes of registers");
  if (use.spills == 0 && use.stack != 0)
    say("keeps " + std::to_string(use.stack) + " bytes a thread in local memory");
  // Registers are given to a warp in units of 8 a thread.
  const int registers = (use.registers + 7) / 8 * 8 * bounds.threads * bounds.blocks;
  if (use.registers > kRegistersOfAThread || registers > kRegisters) {
    say(std::to_string(use.registers) + " registers a thread: " + std::to_string(bounds.blocks) +
        " blocks of " + std::to_string(bounds.threads) + " threads need " + std::to_string(registers) +
        " of " + std::to_string(kRegisters));
  }
  const auto capacity = kSharedMemory.find(architecture);
  if (capacity == kSharedMemory.end()) {
    say("how much shared memory compute capability " + std::to_string(architecture) +
        " has is not known here");
  } else if (const int shared = bounds.blocks * (use.shared + (architecture >= 80 ? kReserved : 0));
             use.shared > kSharedOfABlock || shared > capacity->second) {
    say(std::to_string(use.shared) + " bytes of shared memory a block: " + std::to_string(bounds.blocks) +
        " blocks need " + std::to_string(shared) + " of " + std::to_string(capacity->second));
  }
  return wrong;
}

struct Kernels {
  const Source* source;
  std::vector<std::string> types;
};

// The kernels of each source, in a fixed order. What several programs' files launch is listed once.
std::vector<Kernels> all_kernels() {
  std::map<std::string, std::pair<const Source*, std::set<std::string>>> found;
  for (const auto& kernel : holdfast::kernels::known_kernels()) {
    auto& [source, types] = found[kernel.source->path];
    source = kernel.source;
    types.insert(kernel.type);
  }
  std::vector<Kernels> all;
  for (const auto& [path, entry] : found)
    all.push_back({entry.first, {entry.second.begin(), entry.second.end()}});
  return all;
}

void report(int architecture, const std::string& type, const std::vector<std::string>& wrong,
            const std::string& more) {
  std::printf("%s sm_%d %s%s\n", wrong.empty() ? "ok" : "not ok", architecture, type.c_str(), more.c_str());
  for (const std::string& line : wrong) std::printf("  %s\n", line.c_str());
}

void check_all(int architecture, const Kernels& kernels, const std::vector<Bounds>& bounds) {
  Compiled compiled;
  try {
    compiled =
        compile(*kernels.source, kernels.types, architecture, /*portable=*/false, {"--ptxas-options=-v"});
  } catch (const std::exception& error) {
    report(architecture, kernels.source->path, {error.what()}, "");
    return;
  }
  for (std::size_t i = 0; i < kernels.types.size(); ++i) {
    const auto use = use_in(compiled.log, compiled.symbols[i]);
    if (!use) {
      report(architecture, kernels.types[i], {"ptxas says nothing of it"}, "");
      continue;
    }
    report(architecture, kernels.types[i], wrong_with(*use, bounds[i], architecture),
           ": " + std::to_string(use->registers) + " registers, " + std::to_string(use->shared) +
               " bytes shared");
  }
}

std::vector<Bounds> bounds_of(const Kernels& kernels, int architecture) {
  const Compiled compiled = compile(*kernels.source, kernels.types, architecture, /*portable=*/true);
  std::vector<Bounds> all;
  for (std::size_t i = 0; i < kernels.types.size(); ++i) {
    const auto bounds = bounds_in(compiled.image, compiled.symbols[i]);
    if (!bounds) throw std::runtime_error(kernels.types[i] + " has no launch bounds in its PTX");
    all.push_back(*bounds);
  }
  return all;
}

// Modules whose kernels are embedded, but of which this program knows none: it would look at less than all.
int missing_modules(const std::vector<Kernels>& all) {
  int missing = 0;
  for (const std::string module : {HOLDFAST_KERNEL_MODULES}) {
    const std::string folder = "holdfast/" + module + "/";
    const bool found = std::any_of(all.begin(), all.end(), [&](const Kernels& kernels) {
      return std::string(kernels.source->path).starts_with(folder);
    });
    if (found) continue;
    std::printf("not ok %s\n  no launch() of a kernel of this module is known\n", folder.c_str());
    ++missing;
  }
  return missing;
}

}  // namespace

int main(int argc, char** argv) {
  int first = 1;
  if (argc > 2 && std::string(argv[1]) == "--nvrtc") {
    holdfast::kernels::internal::choose_nvrtc(argv[2]);
    first = 3;
  }
  if (const std::string why = holdfast::kernels::why_no_compiler(); !why.empty()) {
    std::printf("left out: %s\n", why.c_str());
    return 77;
  }
  const std::vector<Kernels> all = all_kernels();
  if (missing_modules(all) != 0) return 1;
  const std::vector<int> known = holdfast::kernels::known_architectures();
  try {
    for (const Kernels& kernels : all) {
      std::vector<Bounds> bounds;
      for (int i = first; i < argc; ++i) {
        const int architecture = std::atoi(argv[i]);
        if (std::find(known.begin(), known.end(), architecture) == known.end()) {
          report(architecture, kernels.source->path, {"this NVRTC does not know the architecture"}, "");
          continue;
        }
        if (bounds.empty()) bounds = bounds_of(kernels, architecture);  // the same for all
        check_all(architecture, kernels, bounds);
      }
    }
  } catch (const std::exception& error) {
    std::printf("not ok kernels\n  %s\n", error.what());
    return 1;
  }
  return 0;
}
