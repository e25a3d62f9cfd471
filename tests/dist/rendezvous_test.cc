// A signal that asks to stop while the ranks meet, and their store hangs (interruptions_test has the other waits).
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <string>

#include "dist/ranks.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

// A port of this host, at which nobody answers.
class Port {
 public:
  Port() : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    socklen_t length = sizeof place_;
    place_.sin_family = AF_INET;
    place_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(socket_, reinterpret_cast<sockaddr*>(&place_), length), 0);
    EXPECT_EQ(::getsockname(socket_, reinterpret_cast<sockaddr*>(&place_), &length), 0);
  }
  ~Port() { ::close(socket_); }
  // Two connections have come: the look whether anybody listens, and that of the store's client.
  void take_two() const {
    EXPECT_EQ(::listen(socket_, 8), 0);
    for (int i = 0; i < 2; ++i) EXPECT_GE(::accept(socket_, nullptr, nullptr), 0);  // open until the end
  }
  Environment of_rank(int rank) const {
    return {{"RANK", std::to_string(rank)},
            {"LOCAL_RANK", std::to_string(rank)},
            {"WORLD_SIZE", "2"},
            {"LOCAL_WORLD_SIZE", "2"},
            {"MASTER_ADDR", "127.0.0.1"},
            {"MASTER_PORT", std::to_string(ntohs(place_.sin_port))},
            {"OMP_NUM_THREADS", "1"}};
  }

 private:
  const int socket_;
  sockaddr_in place_{};
};

TEST(ASignalInTheRendezvous, EndsARankWhoseStoreDoesNotAnswer) {
  const TemporaryFolder folder;
  const Port port;
  Subprocess one(story(folder.path() / "run", 1), port.of_rank(1));
  port.take_two();
  one.send(SIGTERM);
  const Ended ended = one.wait(2min);
  // Not heeded, the signal ends the process after a grace.
  EXPECT_EQ(ended.exit_code, 75) << "signal " << ended.signal << ": " << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("told to stop (a signal) while the ranks were meeting"));
}

}}  // namespace holdfast::test
