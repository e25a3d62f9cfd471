// Where the ranks of a run can be reached, and what those who do not belong to it can hold up.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "support/subprocess.h"

namespace holdfast::test { namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using testing::HasSubstr;

using Words = std::vector<std::string>;

constexpr auto kLimit = 5min;

sockaddr_in place_of(const char* address, int port) {
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_port = htons(static_cast<std::uint16_t>(port));
  inet_pton(AF_INET, address, &place.sin_addr);
  return place;
}

// -1: nobody listens there. The caller closes it.
int connected_to(const char* address, int port) {
  const int made = ::socket(AF_INET, SOCK_STREAM, 0);
  const sockaddr_in place = place_of(address, port);
  if (::connect(made, reinterpret_cast<const sockaddr*>(&place), sizeof place) == 0) return made;
  ::close(made);
  return -1;
}

bool listens(const char* address, int port) {
  const int made = connected_to(address, port);
  if (made >= 0) ::close(made);
  return made >= 0;
}

int free_port() {
  const int made = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in place = place_of("127.0.0.1", 0);
  socklen_t length = sizeof place;
  ::bind(made, reinterpret_cast<sockaddr*>(&place), length);
  ::getsockname(made, reinterpret_cast<sockaddr*>(&place), &length);
  ::close(made);
  return ntohs(place.sin_port);
}

class Strangers : public testing::Test {
 protected:
  // Two ranks of which one comes only when `let_both_meet` was called.
  void start_a_run(std::map<std::string, std::string> variables = {}) {
    variables["OMP_NUM_THREADS"] = "1";
    run_ = std::make_unique<Subprocess>(Words{HOLDFAST_BIN_DIR "/holdfast", "launch", "--nproc", "2", "--",
                                              HOLDFAST_RANK_PROGRAM, "first", folder_.path().string()},
                                        std::move(variables));
    ASSERT_TRUE(run_->wait_until([&] { return fs::exists(folder_.path() / "port"); }, kLimit)) << run_->err();
  }
  int port() const { return std::stoi(read_text(folder_.path() / "port")); }
  Ended let_both_meet() {
    write_text(folder_.path() / "second is over", "");
    return run_->wait(kLimit);
  }

  TemporaryFolder folder_;
  std::unique_ptr<Subprocess> run_;
};

// A server that reads one request to its end before the next would wait for them.
TEST_F(Strangers, WhoSayNothingOrHalfAWordHoldNobodyUp) {
  start_a_run();
  std::vector<int> open;
  for (const std::string said : {"", "\x3c", "\xff\xff\xff\xff\xff\xff\xff\xff and more"}) {
    for (int i = 0; i < 50; ++i) {
      open.push_back(connected_to("127.0.0.1", port()));
      ASSERT_GE(open.back(), 0);
      ::send(open.back(), said.data(), said.size(), MSG_NOSIGNAL);
    }
  }
  const Ended ended = let_both_meet();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  for (const int one : open) ::close(one);
}

// Rank 0 of two ranks, which waits for the other one.
class StoreAddress : public testing::Test {
 protected:
  void start(const char* master_address, const char* ranks_here) {
    zero_ = std::make_unique<Subprocess>(
        Words{HOLDFAST_RANK_PROGRAM, "second", folder_.path().string()},
        std::map<std::string, std::string>{{"RANK", "0"},
                                           {"LOCAL_RANK", "0"},
                                           {"WORLD_SIZE", "2"},
                                           {"LOCAL_WORLD_SIZE", ranks_here},
                                           {"MASTER_ADDR", master_address},
                                           {"MASTER_PORT", std::to_string(port_)}});
  }
  bool found_at(const char* address) {
    return zero_->wait_until([&] { return listens(address, port_); }, kLimit);
  }

  const int port_ = free_port();
  TemporaryFolder folder_;
  std::unique_ptr<Subprocess> zero_;
};

TEST_F(StoreAddress, IsLoopbackIfAllRanksAreOnOneHost) {
  // Not an address of this host: names of clouds' machines may be known elsewhere alone.
  start("192.0.2.1", "2");
  EXPECT_TRUE(found_at("127.0.0.1")) << zero_->err();
  EXPECT_FALSE(listens("127.0.0.2", port_)) << "another address of this host";
}

TEST_F(StoreAddress, IsTheOneThatIsNamedIfRanksAreOnSeveralHosts) {
  start("127.0.0.2", "1");
  EXPECT_TRUE(found_at("127.0.0.2")) << zero_->err();
  EXPECT_FALSE(listens("127.0.0.1", port_)) << "another address of this host";
}

TEST_F(StoreAddress, IsAnyWithAWarningIfTheNamedOneIsNotOfThisHost) {
  start("192.0.2.1", "1");
  EXPECT_TRUE(found_at("127.0.0.1")) << zero_->err();
  EXPECT_TRUE(listens("127.0.0.2", port_));
  const char* const warning = "MASTER_ADDR=192.0.2.1 is no address of an interface of rank 0's host";
  EXPECT_TRUE(zero_->wait_until([&] { return zero_->err().find(warning) != std::string::npos; }, kLimit));
}

// Who set it believes that it guards the port.
TEST_F(Strangers, ASecretOfAnEarlierVersionIsSaidToHaveNoEffect) {
  start_a_run({{"HOLDFAST_JOB_SECRET", "of 0.1"}});
  const Ended ended = let_both_meet();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("HOLDFAST_JOB_SECRET has no effect since 0.2"));
}

}}  // namespace holdfast::test
