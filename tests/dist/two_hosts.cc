#include "dist/two_hosts.h"

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>

namespace holdfast::test {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

std::string namespace_of(pid_t process, const char* kind) {
  std::error_code error;
  return fs::read_symlink("/proc/" + std::to_string(process) + "/ns/" + kind, error).string();
}

bool is_root() { return ::geteuid() == 0; }

// By name; `ip` is not on everybody's path.
std::vector<std::string> by_name(const std::vector<std::string>& words) {
  std::vector<std::string> command = {"/bin/sh", "-c", "PATH=$PATH:/usr/sbin:/sbin exec \"$@\"", "sh"};
  command.insert(command.end(), words.begin(), words.end());
  return command;
}

// Ends with the test, if that is killed.
std::vector<std::string> holder(const std::vector<std::string>& before) {
  std::vector<std::string> command = by_name(before);
  command.insert(command.end(), {"setpriv", "--pdeathsig", "KILL", "sleep", "3600"});
  return command;
}

}  // namespace

std::optional<std::string> TwoHosts::why_not() {
  static const std::optional<std::string> reason = []() -> std::optional<std::string> {
    try {
      const TwoHosts tried;
      return std::nullopt;
    } catch (const std::exception& error) {
      return std::string("no two hosts can be made here: ") + error.what();
    }
  }();
  return reason;
}

TwoHosts::TwoHosts() {
  for (int host = 0; host < 2; ++host) {
    std::vector<std::string> before = {"unshare", "--net", "--"};
    if (!is_root() && host == 0) before = {"unshare", "--map-root-user", "--net", "--"};
    if (!is_root() && host == 1) {
      before = {"nsenter", "-t", std::to_string(hosts_[0]->pid()), "-U", "--preserve-credentials", "unshare",
                "--net",   "--"};
    }
    hosts_[host] = std::make_unique<Subprocess>(holder(before));
    const std::string here = namespace_of(::getpid(), "net");
    const bool made = hosts_[host]->wait_until(
        [&] {
          const std::string there = namespace_of(hosts_[host]->pid(), "net");
          return !there.empty() && there != here &&
                 read_text("/proc/" + std::to_string(hosts_[host]->pid()) + "/comm") == "sleep\n";
        },
        20s);
    if (!made) throw std::runtime_error("unshare --net: " + hosts_[host]->err());
  }
  run(0, {"ip", "link", "add", interface(0), "type", "veth", "peer", "name", interface(1), "netns",
          std::to_string(hosts_[1]->pid())});
  for (int host = 0; host < 2; ++host) {
    run(host, {"ip", "link", "set", "lo", "up"});
    run(host, {"ip", "addr", "add", address(host) + "/24", "dev", interface(host)});
    run(host, {"ip", "link", "set", interface(host), "up"});
  }
}

std::vector<std::string> TwoHosts::on(int host, const std::vector<std::string>& command) const {
  std::vector<std::string> words = {"nsenter", "-t", std::to_string(hosts_[host]->pid()), "--net"};
  if (!is_root()) words.insert(words.end(), {"-U", "--preserve-credentials"});
  words.emplace_back("--");
  words.insert(words.end(), command.begin(), command.end());
  return by_name(words);
}

void TwoHosts::run(int host, const std::vector<std::string>& command) const {
  const Ended ended = Subprocess(on(host, command)).wait();
  if (ended.exit_code == 0) return;
  std::string text;
  for (const std::string& word : command) text += word + " ";
  throw std::runtime_error(text + "on host " + std::to_string(host) + ": " + ended.err);
}

// To an address that nobody at the other end answers to.
void TwoHosts::cut_from(int host) const {
  run(host, {"ip", "neigh", "replace", address(1 - host), "lladdr", "02:00:00:00:00:99", "dev",
             interface(host), "nud", "permanent"});
}

void TwoHosts::pull_the_plug() const { run(0, {"ip", "link", "set", interface(0), "down"}); }

void TwoHosts::signal_all(int host, int signal) const {
  const std::string there = namespace_of(hosts_[host]->pid(), "net");
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const auto pid = static_cast<pid_t>(std::atoi(entry.path().filename().c_str()));
    if (pid > 0 && pid != hosts_[host]->pid() && namespace_of(pid, "net") == there) kill(pid, signal);
  }
}

void TwoHosts::mend() const {
  run(0, {"ip", "link", "set", interface(0), "up"});
  for (int host = 0; host < 2; ++host) {
    run(host, {"ip", "neigh", "flush", "dev", interface(host), "nud", "permanent"});
  }
}

}  // namespace holdfast::test
