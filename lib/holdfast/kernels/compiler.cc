#include "holdfast/kernels/compiler.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

#include "holdfast/base/error.h"
#include "holdfast/kernels/internal/nvrtc.h"

namespace holdfast { inline namespace v0_2 { namespace kernels {
namespace {

using internal::nvrtc;
using internal::Nvrtc;

// No implicit fused multiply-add: a CPU and a GPU must round alike (device_code.h).
// The kernels' headers name no execution space, because a CPU compiles them too.
constexpr std::array kOptions{"--std=c++20", "--device-as-default-execution-space", "--fmad=false"};

void check(Nvrtc::Result result, const char* what) {
  if (result != 0) throw Error(std::string("NVRTC cannot ") + what + ": " + nvrtc().error_string(result));
}

// The first lines that are not blank, joined to one.
std::string beginning_of(const std::string& log) {
  // The first lines name the error; the rest are consequences.
  constexpr int kLines = 3;
  std::string text;
  int lines = 0;
  for (std::size_t begin = 0; begin < log.size() && lines < kLines;) {
    const std::size_t end = std::min(log.find('\n', begin), log.size());
    const std::string line = log.substr(begin, end - begin);
    begin = end + 1;
    if (line.find_first_not_of(std::string_view(" \t\r\0", 4)) == std::string::npos) continue;
    text += (lines++ == 0 ? "" : " | ") + line;
  }
  return text.empty() ? "the compiler says nothing" : text;
}

class Program {
 public:
  explicit Program(const Source& source) {
    std::vector<const char*> texts;
    std::vector<const char*> paths;
    const auto take = [&](std::span<const Text> more) {
      for (const Text& one : more) {
        texts.push_back(one.text);
        paths.push_back(one.path);
      }
    };
    take(source.texts());
    // Shared headers of the kernels, unless the source is one of them.
    if (source.texts != &texts_of_kernels) take(texts_of_kernels());
    // A program of one line: NVRTC reads no files, but it finds an included file among the texts that it is
    // given.
    const std::string text = std::string("#include \"") + source.path + "\"\n";
    check(nvrtc().create(&program_, text.c_str(), "kernels", static_cast<int>(texts.size()), texts.data(),
                         paths.data()),
          "take a program");
  }
  ~Program() { nvrtc().destroy(&program_); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  Nvrtc::Program get() const { return program_; }
  std::string log() const { return read(nvrtc().log_size, nvrtc().log, "give its log"); }
  std::string read(Nvrtc::Result (*size_of)(Nvrtc::Program, std::size_t*),
                   Nvrtc::Result (*get)(Nvrtc::Program, char*), const char* what) const {
    std::size_t size = 0;
    check(size_of(program_, &size), what);
    std::string text(size, '\0');
    check(get(program_, text.data()), what);
    return text;
  }

 private:
  Nvrtc::Program program_ = nullptr;
};

}  // namespace

std::string why_no_compiler() {
  try {
    nvrtc();
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

std::string compiler_version() {
  std::string version = "NVRTC " + std::to_string(nvrtc().major) + "." + std::to_string(nvrtc().minor);
  for (const char* const option : kOptions) version += std::string(" ") + option;
  return version;
}

std::vector<int> known_architectures() {
  int count = 0;
  check(nvrtc().supported_count(&count), "say what it knows");
  std::vector<int> known(static_cast<std::size_t>(count));
  check(nvrtc().supported(known.data()), "say what it knows");
  return known;
}

namespace {

// 0 if all known architectures are newer.
int newest_up_to(int architecture, const std::vector<int>& known) {
  int newest = 0;
  for (const int one : known) {
    if (one <= architecture) newest = std::max(newest, one);
  }
  return newest;
}

}  // namespace

Compiled compile(const Source& source, const std::vector<std::string>& types, int architecture, bool portable,
                 const std::vector<std::string>& more) {
  // A device that is newer than this NVRTC gets code for the newest architecture that it knows.
  const std::vector<int> known = known_architectures();
  if (std::find(known.begin(), known.end(), architecture) == known.end()) {
    const int newest = newest_up_to(architecture, known);
    if (newest == 0) {
      throw Error("this NVRTC does not compile for compute capability " + std::to_string(architecture) +
                  ", which is older than all it knows: use a LibTorch with an older CUDA (2.10.0)");
    }
    architecture = newest;
    portable = true;  // PTX: the driver compiles it for the device
  }
  std::vector<std::string> options = {std::string("--gpu-architecture=") + (portable ? "compute_" : "sm_") +
                                      std::to_string(architecture)};
  options.insert(options.end(), kOptions.begin(), kOptions.end());
  options.insert(options.end(), more.begin(), more.end());
  std::vector<const char*> words;
  for (const std::string& option : options) words.push_back(option.c_str());

  const Program program(source);
  std::vector<std::string> names;
  // Taking the address makes NVRTC instantiate the template and keep its name.
  for (const std::string& type : types) names.push_back("&holdfast::kernels::run<" + type + ">");
  for (const std::string& name : names) check(nvrtc().add_name(program.get(), name.c_str()), "take a name");
  const Nvrtc::Result result = nvrtc().compile(program.get(), static_cast<int>(words.size()), words.data());
  if (result != 0) {
    throw Error("kernel " + (types.empty() ? source.path : types.front()) + " does not compile for " +
                options.front().substr(options.front().find('=') + 1) + ": " + nvrtc().error_string(result) +
                ": " + beginning_of(program.log()));
  }
  Compiled compiled{.image = portable ? program.read(nvrtc().ptx_size, nvrtc().ptx, "give its PTX")
                                      : program.read(nvrtc().cubin_size, nvrtc().cubin, "give its code"),
                    .symbols = {},
                    .log = program.log()};
  for (const std::string& name : names) {
    const char* symbol = nullptr;
    // C++ names are mangled; the driver finds kernels by their mangled names only.
    check(nvrtc().lowered_name(program.get(), name.c_str(), &symbol), "find a kernel");
    compiled.symbols.emplace_back(symbol);
  }
  return compiled;
}

}}}  // namespace holdfast::v0_2::kernels
