// The connections that end with a loss.
#include "holdfast/distributed/internal/connections.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>

#include "holdfast/ranks/sockets.h"

namespace holdfast { namespace {

using namespace std::chrono_literals;

constexpr int kStorePort = 1;  // nobody's here

TEST(Connections, ThoseThatCameSinceAreBroken) {
  const auto listening = listen_at("127.0.0.1", 0);
  ASSERT_TRUE(listening);
  const auto connect = [&] {
    return connect_to("127.0.0.1", own_end(listening->get()).second, Clock::real().now() + 60s,
                      [] { return false; });
  };
  const Socket older = connect();
  Connections connections;
  const auto before = Connections::all(kStorePort);
  const Socket newer = connect();
  connections.add_since(before, kStorePort);
  connections.shut();
  char byte = 0;
  EXPECT_EQ(::recv(newer.get(), &byte, 1, MSG_DONTWAIT), 0) << "its end";
  EXPECT_EQ(::recv(older.get(), &byte, 1, MSG_DONTWAIT), -1);
  EXPECT_EQ(errno, EAGAIN) << "nothing has come yet";
}

}}  // namespace holdfast
