#include "dist/slurm.h"

#include <unistd.h>

#include <chrono>
#include <stdexcept>

namespace holdfast::test {

using namespace std::chrono_literals;

namespace {

// By name; daemons are not on everybody's path.
std::vector<std::string> by_name(const std::vector<std::string>& words) {
  std::vector<std::string> command = {"/bin/sh", "-c", "PATH=$PATH:/usr/sbin:/sbin exec \"$@\"", "sh"};
  command.insert(command.end(), words.begin(), words.end());
  return command;
}

}  // namespace

std::optional<std::string> Slurm::start(std::unique_ptr<Slurm>& cluster) {
  if (geteuid() != 0) return "Slurm's daemons need root here";
  for (const char* const tool : {"slurmctld", "slurmd", "munged", "sbatch", "ip", "nsenter", "unshare"}) {
    if (Subprocess(by_name({"/bin/sh", "-c", "command -v \"$1\"", "sh", tool})).wait().exit_code != 0) {
      return std::string("no ") + tool + " here (Debian: slurm-wlm, munge)";
    }
  }
  cluster.reset(new Slurm());
  const bool ready = cluster->cluster_->wait_until(
      [&] { return cluster->cluster_->out().find("ready\n") != std::string::npos; }, 90s);
  if (!ready) {
    const std::string why = cluster->cluster_->out() + cluster->cluster_->err() +
                            read_text(cluster->folder_.path() / "slurmctld.log");
    cluster.reset();
    return "Slurm does not start here: " + why;
  }
  return std::nullopt;
}

Slurm::Slurm() {
  cluster_ = std::make_unique<Subprocess>(
      by_name({"unshare", "--net", "--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
               "--", HOLDFAST_SOURCE_DIR "/tests/dist/slurm_cluster", folder_.path().string()}));
}

std::vector<std::string> Slurm::inside(const std::vector<std::string>& command) const {
  const std::string pid = std::to_string(cluster_->pid());
  std::string process_one = read_text("/proc/" + pid + "/task/" + pid + "/children");
  process_one = process_one.substr(0, process_one.find(' '));
  std::vector<std::string> words = {"nsenter",
                                    "-t",
                                    process_one,
                                    "--net",
                                    "--uts",
                                    "--mount",
                                    "--pid",
                                    "--wd=" + folder_.path().string(),
                                    "--",
                                    "env",
                                    "SLURM_CONF=" + (folder_.path() / "slurm.conf").string()};
  words.insert(words.end(), command.begin(), command.end());
  return by_name(words);
}

std::string Slurm::run(const std::vector<std::string>& command,
                       const std::map<std::string, std::string>& environment) const {
  const Ended ended = Subprocess(inside(command), environment).wait();
  if (ended.exit_code != 0) throw std::runtime_error(command.front() + ": " + ended.err);
  return ended.out.substr(0, ended.out.find_last_not_of('\n') + 1);
}

std::string Slurm::field(const std::string& job, const std::string& name) const {
  const Ended ended = Subprocess(inside({"scontrol", "show", "job", "--oneliner", job})).wait();
  const std::size_t at = (" " + ended.out).find(" " + name + "=");
  if (ended.exit_code != 0 || at == std::string::npos) return {};
  const std::size_t begin = at + name.size() + 1;
  return ended.out.substr(begin, ended.out.find_first_of(" \n", begin) - begin);
}

bool Slurm::reaches(const std::string& job, const std::string& state) const {
  std::string hurried;
  return cluster_->wait_until(
      [&] {
        const std::string now = field(job, "JobState");
        const std::string restarts = field(job, "Restarts");
        if (now == "PENDING" && field(job, "Reason") == "BeginTime" && restarts != hurried) {
          // Not at once: a node refuses a job that is as old as the end of its last life, to the second.
          Subprocess(inside({"scontrol", "update", "JobId=" + job, "StartTime=now+3"})).wait();
          hurried = restarts;
        }
        return now == state;
      },
      5min);
}

void Slurm::kill_steps_of(const std::string& job) const {
  run({"/bin/sh", "-c", "pkill -KILL --full \"^slurmstepd: \\[$1\\.\"", "sh", job});
}

}  // namespace holdfast::test
