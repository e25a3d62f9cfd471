// The command that starts a program as one rank of a run on this host: env(1) with the variables of a launcher.
//
//   std::vector<std::string> words = rank_environment(rank, count, socket, 1);  // then the program's own words
//
// Rank 0 inherits the socket (ChildOptions::inherited). Errors: std::bad_alloc. Threads: any.
#pragma once

#include <string>
#include <vector>

#include "holdfast/base/env.h"
#include "holdfast/cli/launch/listening_socket.h"

namespace holdfast::bench {

inline std::vector<std::string> rank_environment(int rank, int count, const ListeningSocket& socket,
                                                 int threads) {
  const auto set = [](const EnvVariable& variable, const std::string& value) {
    return std::string(variable.name) + "=" + value;
  };
  const std::string port = std::to_string(socket.port());
  std::vector<std::string> words = {"/usr/bin/env",
                                    "RANK=" + std::to_string(rank),
                                    "LOCAL_RANK=" + std::to_string(rank),
                                    "WORLD_SIZE=" + std::to_string(count),
                                    "LOCAL_WORLD_SIZE=" + std::to_string(count),
                                    "MASTER_ADDR=127.0.0.1",
                                    "MASTER_PORT=" + port,
                                    "OMP_NUM_THREADS=" + std::to_string(threads),
                                    set(kEnvLaunchJob, port)};
  if (rank == 0) words.push_back(set(kEnvLaunchSocket, std::to_string(socket.descriptor())));
  return words;
}

}  // namespace holdfast::bench
