#include "disk.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "holdfast/base/error.h"
#include "paced_file_system.h"

namespace holdfast::bench {

namespace fs = std::filesystem;

std::string program(const char* name) { return fs::read_symlink("/proc/self/exe").parent_path() / name; }
std::string self() { return fs::read_symlink("/proc/self/exe"); }

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.0f", value);
  return text;
}
std::string name_of(double limit) { return limit > 0 ? number(limit) + " MB/s" : "no limit"; }
std::string key_of(double limit) { return limit > 0 ? number(limit) : "unlimited"; }

Words mirror_command(const std::string& run, const std::string& home, double limit) {
  Words words = {program("holdfast"), "mirror", run, "--to", home};
  if (limit > 0) words.insert(words.end(), {"--limit", number(limit)});
  return words;
}

Disk::Disk(const fs::path& directory, std::uint64_t bytes) : folder_(directory) {
  Words words = {self(), "--child-train",   run(), "--child-state", std::to_string(bytes), "--child-every",
                 "0.01", "--child-seconds", "0.02"};
  MeasuredRun(words, log()).wait();
  for (const auto& entry : fs::directory_iterator(run())) {
    if (entry.path().extension() == ".h5") file_ = std::max(file_, entry.path());
  }
  if (file_.empty()) throw Error("the trainer saved nothing in " + run());
  // One checkpoint: what is measured is one copy.
  for (const auto& entry : fs::directory_iterator(run())) {
    if (entry.path().extension() == ".h5" && entry.path() != file_) fs::remove(entry.path());
  }
}

void Disk::settle() const {
  std::error_code none;
  fs::remove_all(home(), none);
  fs::remove(fs::path(run()) / "HOME_STATE.json", none);
  fs::create_directories(home());
  const int descriptor = open(home().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  syncfs(descriptor);
  close(descriptor);
}

Measured Disk::mirror(const std::string& place, double limit) const {
  settle();
  drop_source();
  Words words = mirror_command(run(), place, limit);
  words.emplace_back("--once");
  return MeasuredRun(words, log()).wait();
}

Measured Disk::rclone_alone(double limit) const {
  settle();
  drop_source();
  Words words = {"rclone", "copyto", "--ignore-times", "--no-traverse"};
  if (limit > 0) words.insert(words.end(), {"--bwlimit", number(limit * 1e6 / 1024)});
  words.insert(words.end(), {file_.native(), copy()});
  return MeasuredRun(words, log()).wait();
}

Measured Disk::rclone_reads_back() const {
  return MeasuredRun({"rclone", "cat", copy()}, "/dev/null").wait();
}

Measured Disk::copied(double limit) const {
  settle();
  drop_source();
  const auto begin = std::chrono::steady_clock::now();
  const std::string to = copy();
  const int in = open(file_.c_str(), O_RDONLY | O_CLOEXEC);
  const int out = open((to + ".part").c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (in < 0 || out < 0) throw IoError("open", to, errno);
  WritePace pace(limit);
  std::vector<char> buffer(1 << 20);
  for (ssize_t got = 0; (got = read(in, buffer.data(), buffer.size())) > 0;) {
    if (write(out, buffer.data(), static_cast<std::size_t>(got)) != got) throw IoError("write", to, errno);
    pace.spend(static_cast<std::uint64_t>(got));
  }
  if (fsync(out) != 0) throw IoError("fsync", to, errno);
  close(in);
  close(out);
  fs::rename(to + ".part", to);
  const int folder = open(home().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  fsync(folder);
  close(folder);
  return {.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count()};
}

void Disk::drop_source() const {
  const int in = open(file_.c_str(), O_RDONLY | O_CLOEXEC);
  posix_fadvise(in, 0, 0, POSIX_FADV_DONTNEED);
  close(in);
}

bool rclone_is_there() { return std::system("rclone version >/dev/null 2>&1") == 0; }

nlohmann::json trained(const Words& options, const std::string& log) {
  Words words = {self()};
  words.insert(words.end(), options.begin(), options.end());
  MeasuredRun(words, log).wait();
  std::ifstream lines(log);
  std::string last;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("{")) last = line;
  }
  return nlohmann::json::parse(last);
}

}  // namespace holdfast::bench
