// The `holdfast` program in this process, over a scratch directory. The input: arguments, one a line; after
// the byte 0x1e the attributes of a checkpoint that lies there (their JSON, sealed with every digest in
// order); after another one, a run state. No argument leaves the scratch directory.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iostream>

#include "holdfast/base/exit_code.h"
#include "holdfast/base/log.h"
#include "holdfast/cli/commands.h"
#include "holdfast/format/internal/index_json.h"
#include "holdfast/format/layout.h"
#include "memory_budget.h"
#include "sealed_file.h"

namespace holdfast::test { namespace {

namespace fs = std::filesystem;

constexpr char kSeparator = '\x1e';
constexpr const char* kHostile = "step-000000000007-a0003.h5";
constexpr const char* kGood = "step-000000000005-a0001.h5";
constexpr std::string_view kRecord =
    R"({"decides":{},"record":{"run.attempt":1,"run.ancestry":{"integers":[]},"run.loss":{"float":"3fe0000000000000"},)"
    R"("run.finite":true,"run.evaluation_due":false,"run.overrides":{"texts":[]},"run.grown_from":"",)"
    R"("run.time":"2025-06-01T12:00:05Z","run.host":"here"}})";

fs::path scratch;

void write(const fs::path& path, std::span<const std::byte> bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

// A checkpoint of one small tensor.
std::vector<std::byte> checkpoint(std::string_view attributes, int step) {
  const std::string head = R"({"attribute_capacity":2048,"step":)" + std::to_string(step) +
                           R"(,"tensors":[{"name":"model/w","dtype":"uint8","shape":[8],"offset":)";
  const std::string digest(32, '0');
  const auto text = [&](std::uint64_t at) {
    return head + std::to_string(at) + R"(,"length":8,"digest":")" + digest +
           R"("}],"stretches":[{"offset":)" + std::to_string(at + 8) + R"(,"length":56,"digest":")" + digest +
           R"("}],"attributes":)" + std::string(attributes) + "}";
  };
  const std::vector<std::byte> body(64, std::byte{1});
  const std::uint64_t user_block = header_of(sealed_file(text(kMinUserBlock), body)).user_block;
  std::vector<std::byte> file = sealed_file(text(user_block), body);
  auto parsed = internal::parse_index(text(user_block), false);
  if (auto* const index = std::get_if<CheckpointIndex>(&parsed)) {
    set_digests(*index, file);
    set_index_text(file, internal::index_json(*index));
  }
  return file;
}

std::string content(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void set_up() {
  const char* const memory = "/dev/shm";
  const fs::path folder = ::access(memory, W_OK) == 0 ? fs::path(memory) : fs::temp_directory_path();
  scratch = folder / ("holdfast_fuzz_" + std::to_string(::getpid()));
  fs::create_directories(scratch / "attempts");
  fs::current_path(scratch);
  write(kGood, checkpoint(kRecord, 5));
  std::atexit([] {
    std::error_code ignored;
    fs::remove_all(scratch, ignored);
  });
  ::setenv("HOLDFAST_LOG", "off", 1);
}

std::vector<std::string> arguments_in(std::string_view text) {
  std::vector<std::string> arguments;
  for (std::size_t begin = 0; begin <= text.size() && arguments.size() < 16;) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string argument(text.substr(begin, end - begin));
    // As execve would pass it, and nowhere but here.
    argument.erase(std::min(argument.find('\0'), argument.size()));
    std::erase(argument, '/');
    if (argument.find("..") != std::string::npos) argument = ".";
    arguments.push_back(std::move(argument));
    begin = end + 1;
  }
  return arguments;
}

// What the commands print has to be made, and goes nowhere.
class Nowhere final : public std::streambuf {
 public:
  std::size_t written = 0;

 private:
  int overflow(int c) override {
    ++written;
    return c == EOF ? 0 : c;
  }
  std::streamsize xsputn(const char*, std::streamsize count) override {
    written += static_cast<std::size_t>(count);
    return count;
  }
};

// `prune` claims the directory, `export` writes a file.
void remove_others() {
  for (const auto& entry : fs::directory_iterator(scratch / "attempts")) fs::remove_all(entry);
  for (const auto& entry : fs::directory_iterator(scratch)) {
    const std::string name = entry.path().filename();
    if (name != kGood && name != kHostile && name != "attempts" && name != "RUN_STATE.json")
      fs::remove_all(entry);
  }
}

}}  // namespace holdfast::test

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  holdfast::test::set_up();
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace holdfast;
  using namespace holdfast::test;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t first = std::min(input.find(kSeparator), size);
  const std::size_t second = std::min(input.find(kSeparator, std::min(first + 1, size)), size);
  const std::string_view attributes = first < size ? input.substr(first + 1, second - first - 1) : kRecord;
  const std::vector<std::byte> hostile = checkpoint(attributes, 7);
  write(kHostile, hostile);
  const std::string_view state = second < size ? input.substr(second + 1) : "";
  write("RUN_STATE.json", std::as_bytes(std::span(state)));
  const std::string good = content(kGood);

  Nowhere nowhere;
  std::streambuf* const was = std::cout.rdbuf(&nowhere);
  std::cout.clear();
  int code = 0;
  {
    const MemoryBudget budget(budget_for(hostile.size()) +
                              (std::uint64_t{64} << 20));  // readers have 8 MiB a thread
    code = run_program(arguments_in(input.substr(0, first)));
  }
  std::cout.rdbuf(was);
  require(code == 0 || code == static_cast<int>(ExitCode::difference) ||
              code == static_cast<int>(ExitCode::unreadable) || code == static_cast<int>(ExitCode::usage),
          "an exit code that says there is a defect");
  require(nowhere.written < 64 * size + (1 << 20), "an answer without end");
  require(content(kGood) == good, "a checkpoint was changed");
  const std::string left = content(kHostile);
  require(std::equal(left.begin(), left.end(), hostile.begin(), hostile.end(),
                     [](char a, std::byte b) { return static_cast<std::byte>(a) == b; }),
          "a checkpoint was changed");
  remove_others();
  return 0;
}
