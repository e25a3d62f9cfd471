#include "dist/ranks.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <stdexcept>

namespace holdfast::test {

using namespace std::chrono_literals;

Meeting::Meeting(int world_size) : world_size_(world_size), socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof place;
  auto* const address = reinterpret_cast<sockaddr*>(&place);
  if (socket_ < 0 || ::bind(socket_, address, length) != 0 || ::listen(socket_, 64) != 0 ||
      ::getsockname(socket_, address, &length) != 0) {
    throw std::runtime_error("no port to meet at");
  }
  port_ = ntohs(place.sin_port);
}

Meeting::~Meeting() { ::close(socket_); }

Environment Meeting::of_rank(int rank) const {
  const std::string size = std::to_string(world_size_);
  Environment variables = {{"RANK", std::to_string(rank)},
                           {"LOCAL_RANK", std::to_string(rank)},
                           {"WORLD_SIZE", size},
                           {"LOCAL_WORLD_SIZE", size},
                           {"MASTER_ADDR", "127.0.0.1"},
                           {"MASTER_PORT", std::to_string(port_)},
                           {"HOLDFAST_LAUNCH_JOB", "test-" + std::to_string(port_)},
                           {"HOLDFAST_TERM_GRACE", "120s"},
                           {"OMP_NUM_THREADS", "1"}};
  if (rank == 0) variables["HOLDFAST_LAUNCH_SOCKET"] = std::to_string(socket_);
  return variables;
}

Words story(const std::filesystem::path& run, int steps, const Words& more) {
  Words words = {HOLDFAST_STORY_PROGRAM, run.string(), std::to_string(steps)};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

Ended launch(int ranks, const Words& story) {
  Words words = {HOLDFAST_BIN_DIR "/holdfast", "launch", "--nproc", std::to_string(ranks), "--"};
  words.insert(words.end(), story.begin(), story.end());
  return Subprocess(words, {{"OMP_NUM_THREADS", "1"}, {"HOLDFAST_TERM_GRACE", "120s"}}).wait(10min);
}

Words said_alone(const Ended& ended, const std::string& word) {
  Words answers;
  for (const std::string& line : lines_of(ended.out)) {
    if (line.starts_with(word + " ")) answers.push_back(line.substr(word.size() + 1));
  }
  return answers;
}

std::string not_whole(const std::filesystem::path& run, int* count) {
  int found = 0;
  if (std::filesystem::exists(run)) {
    for (const auto& entry : std::filesystem::directory_iterator(run)) {
      const std::string name = entry.path().filename();
      found += static_cast<int>(name.starts_with("step-") && name.ends_with(".h5"));
    }
  }
  if (count != nullptr) *count = found;
  if (found == 0) return {};
  const Ended ended = Subprocess({HOLDFAST_BIN_DIR "/holdfast", "verify", run.string()}).wait();
  return ended.exit_code == 0 ? "" : ended.out + ended.err;
}

Environment contents(const std::filesystem::path& folder) {
  Environment found;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    found[entry.path().string()] = entry.is_regular_file() ? read_text(entry.path()) : "";
  }
  return found;
}

}  // namespace holdfast::test
