// The connections that end with a loss.
#include "holdfast/distributed/internal/connections.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "holdfast/distributed/internal/listening.h"

namespace holdfast { namespace {

constexpr int kStorePort = 1;  // nobody's here

TEST(Connections, ThoseThatCameSinceAreBroken) {
  const int listening = listen_at("127.0.0.1", 0);
  ASSERT_GE(listening, 0);
  const auto connect = [&] {
    const int made = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in place{};
    place.sin_family = AF_INET;
    place.sin_port = htons(own_end(listening).second);
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(made, reinterpret_cast<const sockaddr*>(&place), sizeof place), 0);
    return made;
  };
  const int older = connect();
  Connections connections;
  const auto before = Connections::all(kStorePort);
  const int newer = connect();
  connections.add_since(before, kStorePort);
  connections.shut();
  char byte = 0;
  EXPECT_EQ(::recv(newer, &byte, 1, MSG_DONTWAIT), 0) << "its end";
  EXPECT_EQ(::recv(older, &byte, 1, MSG_DONTWAIT), -1);
  EXPECT_EQ(errno, EAGAIN) << "nothing has come yet";
  for (const int one : {newer, older, listening}) ::close(one);
}

}}  // namespace holdfast
