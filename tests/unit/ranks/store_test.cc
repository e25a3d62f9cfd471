// The store by which ranks meet: what it keeps, and for whom.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <filesystem>
#include <future>
#include <iterator>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "holdfast/base/random_bytes.h"
#include "holdfast/ranks/keyed_hash.h"
#include "holdfast/ranks/store_connection.h"
#include "holdfast/ranks/store_server.h"

namespace holdfast { namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::IsEmpty;

// The examples of FIPS 180-2 and RFC 4231.
TEST(KeyedHash, IsThatOfTheStandards) {
  EXPECT_EQ(in_hex(sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(in_hex(sha256("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(in_hex(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(in_hex(keyed_hash(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(in_hex(keyed_hash("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(
      in_hex(keyed_hash(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First")),
      "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  EXPECT_TRUE(equal_in_constant_time("same", "same"));
  EXPECT_FALSE(equal_in_constant_time("same", "Same"));
  EXPECT_FALSE(equal_in_constant_time("same", "sam"));
}

class Store : public testing::Test {
 protected:
  Store() {
    auto listening = listen_at("127.0.0.1", 0);
    place_ = {"127.0.0.1", own_end(listening->get()).second, "our secret"};
    server_ = std::make_shared<StoreServer>(std::move(*listening), place_.secret);
  }
  std::unique_ptr<StoreConnection> client() const { return std::make_unique<StoreConnection>(place_, 60s); }

  StoreConnection::Place place_;
  std::shared_ptr<StoreServer> server_;
};

constexpr auto kNever = [] { return false; };

// Not only when its thread looks for strangers that have waited too long.
TEST_F(Store, GreetsAClientAtOnce) {
  Duration fastest = 60s;
  for (int i = 0; i < 5; ++i) {
    const SteadyTime began = Clock::real().now();
    client();
    fastest = std::min<Duration>(fastest, Clock::real().now() - began);
  }
  EXPECT_LT(fastest, 900ms);
}

TEST_F(Store, KeepsWhatItIsTold) {
  const auto one = client();
  const auto other = one->again();
  one->set("text", std::string("a\0b", 3));
  EXPECT_THAT(other->get({"text"}), ElementsAre(std::string("a\0b", 3)));
  EXPECT_EQ(one->add("count", 2), 2);
  EXPECT_EQ(other->add("count", -5), -3);
  EXPECT_THAT(other->get({"count"}), ElementsAre("-3"));
  EXPECT_THROW(one->add("text", 1), StoreFailed);
  EXPECT_TRUE(one->check({"text", "count"}));
  EXPECT_FALSE(one->check({"text", "none"}));
  EXPECT_THROW(one->get({"text", "none"}), StoreFailed);
  EXPECT_THAT(one->call(Kind::compare_set, {"text", "other", "no"}), ElementsAre(std::string("a\0b", 3)));
  EXPECT_THAT(one->call(Kind::compare_set, {"text", std::string("a\0b", 3), "yes"}), ElementsAre("yes"));
  EXPECT_THAT(one->call(Kind::erase, {"text"}), ElementsAre("1"));
  EXPECT_THAT(one->call(Kind::erase, {"text"}), ElementsAre("0"));
  EXPECT_THAT(one->call(Kind::count, {}), ElementsAre("1"));
  const std::string long_one(3'000'000, 'x');
  one->set_all({"a", "b"}, long_one);
  one->call(Kind::append, {"b", "y"});
  EXPECT_THAT(other->get({"a", "b"}), ElementsAre(long_one, long_one + "y"));
}

TEST_F(Store, AnAdditionThatFailsLeavesNoKey) {
  const auto one = client();
  EXPECT_THROW(one->call(Kind::add, {"count", "many"}), StoreFailed);
  EXPECT_FALSE(one->check({"count"}));
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(one->add("count", kMost), kMost);
  EXPECT_THROW(one->add("count", 1), StoreFailed) << "the sum would overflow";
  EXPECT_EQ(one->add("count", -1), kMost - 1);
}

TEST_F(Store, ASwapTellsAndReadsAtOnce) {
  const auto one = client();
  EXPECT_EQ(one->swap("mine", "1", "theirs"), std::nullopt);
  client()->set("theirs", "2");
  EXPECT_EQ(one->swap("mine", "3", "theirs"), "2");
  EXPECT_THAT(one->get({"mine"}), ElementsAre("3"));
  one->note("mine", "4");
  EXPECT_THAT(one->get({"mine"}), ElementsAre("4")) << "a note has no answer";
}

TEST_F(Store, AWaitEndsWhenAllIsThere) {
  const auto one = client(), two = client(), other = client();
  EXPECT_THAT(one->missing({"a", "b"}, 0s, kNever), ElementsAre("a", "b"));
  const auto waits = [](StoreConnection& store) {
    return std::async(std::launch::async, [&] { return store.missing({"a", "b", "b"}, 60s, kNever); });
  };
  auto first = waits(*one), second = waits(*two);
  other->set("b", "");
  other->erase("b");
  other->set("a", "");
  EXPECT_EQ(first.wait_for(200ms), std::future_status::timeout) << "b has gone again";
  other->set("b", "");
  EXPECT_THAT(first.get(), IsEmpty());
  EXPECT_THAT(second.get(), IsEmpty());
  EXPECT_THAT(one->missing({"a", "c"}, 1ms, kNever), ElementsAre("c")) << "in time";
  EXPECT_THAT(one->missing({"a", "c"}, 1h, [] { return true; }), ElementsAre("c"))
      << "as soon as it gives up";
  EXPECT_EQ(one->add("count", 1), 1) << "and nothing is left over";
}

TEST_F(Store, AThreadThatWaitsLetsOthersPass) {
  const auto one = client();
  auto waits = std::async(std::launch::async, [&] { return one->missing({"a"}, 1h, kNever); });
  for (int i = 0; i < 3; ++i) EXPECT_EQ(one->add("count", 1), i + 1);
  EXPECT_EQ(waits.wait_for(0s), std::future_status::timeout);
  one->set("a", "");
  EXPECT_THAT(waits.get(), IsEmpty());
}

TEST_F(Store, TheEndOfAConnectionEndsItsWait) {
  const auto one = client();
  auto waits = client();
  waits->begin(Kind::await, {"60000", "a"});
  EXPECT_EQ(waits->finish(100ms), std::nullopt);
  waits.reset();
  one->set("a", "");
  EXPECT_EQ(one->add("count", 1), 1);
}

TEST_F(Store, WhoHasAnotherSecretIsTurnedAway) {
  for (const char* const secret : {"", "our secret ", "another"}) {
    place_.secret = secret;
    EXPECT_THROW(client(), OtherSecret) << secret;
  }
}

// A server that does not know the secret must not be told anything.
TEST_F(Store, AFalseServerIsTurnedAway) {
  auto listening = listen_at("127.0.0.1", 0);
  place_.port = own_end(listening->get()).second;
  std::thread liar([&] {
    pollfd wait{listening->get(), POLLIN, 0};
    ::poll(&wait, 1, 60'000);
    Socket came(::accept(listening->get(), nullptr, nullptr));
    const std::string all =
        packed({Kind::hello, {std::string(16, 'x')}}) + packed({Kind::welcome, {std::string(32, 'x')}});
    send_all(came.get(), std::as_bytes(std::span(all)));
    // Until the client hangs up: closing earlier could lose what it has not read yet.
    for (char said = 0; ::recv(came.get(), &said, 1, 0) > 0;) {
    }
  });
  EXPECT_THROW(client(), OtherSecret);
  liar.join();
}

// Knows the secret, and answers each request with the same words: a store of another version.
class ConfusedStore {
 public:
  explicit ConfusedStore(std::vector<std::string> words)
      : listening_(std::move(*listen_at("127.0.0.1", 0))),
        thread_([this, words = std::move(words)] { serve(words); }) {}
  ~ConfusedStore() { thread_.join(); }

  StoreConnection::Place place() const {
    return {"127.0.0.1", own_end(listening_.get()).second, "our secret"};
  }

 private:
  void serve(const std::vector<std::string>& words) {
    pollfd wait{listening_.get(), POLLIN, 0};
    ::poll(&wait, 1, 60'000);
    const Socket client(::accept(listening_.get(), nullptr, nullptr));
    const auto say = [&](Kind kind, std::vector<std::string> what) {
      const std::string bytes = packed({kind, std::move(what)});
      send_all(client.get(), std::as_bytes(std::span(bytes)));
    };
    say(Kind::hello, {"a nonce"});
    std::string came;
    for (std::array<char, 4096> piece{};;) {
      const ssize_t got = ::recv(client.get(), piece.data(), piece.size(), 0);
      if (got <= 0) return;
      came.append(piece.data(), static_cast<std::size_t>(got));
      while (const auto message = take_message(came, 4096)) {
        if (message->kind == Kind::proof) {
          say(Kind::welcome, {proof_of_server("our secret", "a nonce", message->words.at(0))});
        } else {
          say(Kind::done, words);
        }
      }
    }
  }

  const Socket listening_;
  std::thread thread_;
};

TEST(StoreConnection, AnAnswerThatIsNoneIsAFailedRequest) {
  ConfusedStore silent({});
  StoreConnection to_silent(silent.place(), 60s);
  EXPECT_THROW(to_silent.add("a", 1), StoreFailed);
  EXPECT_THROW(to_silent.check({"a"}), StoreFailed);
  EXPECT_THROW(to_silent.get({"a"}), StoreFailed);
  ConfusedStore no_number({"one"});
  StoreConnection to_no_number(no_number.place(), 60s);
  EXPECT_THROW(to_no_number.add("a", 1), StoreFailed);
  EXPECT_THAT(to_no_number.get({"a"}), ElementsAre("one")) << "the connection is as good as before";
}

TEST_F(Store, StrangersCannotHoldItUp) {
  const auto one = client();
  std::vector<Socket> strangers;
  for (int i = 0; i < 600; ++i) {
    strangers.push_back(
        connect_to("127.0.0.1", place_.port, Clock::real().now() + 60s, [] { return false; }));
    const std::string half = "\x08";
    send_all(strangers.back().get(), std::as_bytes(std::span(half)));
  }
  EXPECT_EQ(one->add("count", 1), 1);
  EXPECT_EQ(client()->add("count", 1), 2);
}

// Rank 0 saves with the same descriptors.
TEST(StoreServer, StrangersThatComeInOneMomentTakeFewDescriptors) {
  auto listening = listen_at("127.0.0.1", 0);
  const std::uint16_t port = own_end(listening->get()).second;
  std::vector<Socket> strangers;
  for (int i = 0; i < 420; ++i) {
    strangers.push_back(connect_to("127.0.0.1", port, Clock::real().now() + 60s, [] { return false; }));
  }
  const auto descriptors = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                         std::filesystem::directory_iterator());
  };
  const auto before = descriptors();
  const StoreServer server(std::move(*listening), "our secret");
  for (const Socket& stranger : strangers) {  // each is let in, if only for a moment
    pollfd wait{stranger.get(), POLLIN, 0};
    ASSERT_EQ(::poll(&wait, 1, 60'000), 1);
  }
  EXPECT_LT(descriptors() - before, 340);
}

TEST_F(Store, WillsHoldUnlessTheyAreWithdrawn) {
  const auto one = client();
  auto dies = client();
  auto leaves = client();
  dies->make_will("dead", "yes");
  leaves->make_will("left", "yes");
  leaves->withdraw_will();
  EXPECT_FALSE(one->check({"dead"}));
  dies.reset();
  leaves.reset();
  EXPECT_THAT(one->missing({"dead"}, 60s, kNever), IsEmpty());
  EXPECT_THAT(one->get({"dead"}), ElementsAre("yes"));
  EXPECT_FALSE(one->check({"left"}));
}

// A program may fork while its ranks are connected. An epoll keeps a closed socket that a child still holds.
TEST_F(Store, ForgetsAConnectionThatAForkedChildStillHolds) {
  const auto one = client();
  const auto other = client();
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  ASSERT_GT(child, 0);
  other->make_will("gone", "yes");
  other->shut();
  EXPECT_THAT(one->missing({"gone"}, 60s, kNever), IsEmpty());
  const Duration before = server_->traffic().processor;
  std::this_thread::sleep_for(500ms);
  EXPECT_LT(server_->traffic().processor - before, 5ms) << "it is told of that socket again and again";
  EXPECT_EQ(one->add("count", 1), 1);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

TEST_F(Store, ItsEndIsNoticed) {
  const auto one = client();
  server_.reset();
  EXPECT_THROW(one->add("count", 1), StoreClosed);
  EXPECT_THROW(one->add("count", 1), StoreClosed);
}

TEST(StoreMessages, WhatIsNoneIsRefused) {
  const std::string whole = packed({Kind::set, {"key", "value"}});
  std::string bytes = whole.substr(0, whole.size() - 1);
  EXPECT_FALSE(take_message(bytes, 100));
  bytes = whole + whole.substr(0, 3);
  EXPECT_THAT(take_message(bytes, 100).value().words, ElementsAre("key", "value"));
  EXPECT_EQ(bytes, whole.substr(0, 3));
  for (std::size_t i = 0; i < whole.size(); ++i) {
    for (const char value : {'\0', '\x7f', '\xff'}) {
      bytes = whole;
      bytes[i] = value;
      try {
        take_message(bytes, 100);
      } catch (const std::runtime_error&) {
      }
    }
  }
  bytes = whole;
  EXPECT_THROW(take_message(bytes, 10), std::runtime_error);
}

}}  // namespace holdfast
