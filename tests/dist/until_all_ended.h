// Threads: any.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace holdfast::test {

// Before the command of so many ranks: keeps how it ended to itself (and to `folder`/over<rank>) until all
// have, so that the launcher, which kills the others a while after the first, has no part in what they find
// out by themselves.
inline std::vector<std::string> until_all_ended(int ranks, const std::filesystem::path& folder) {
  std::string all;
  for (int rank = 0; rank < ranks; ++rank) {
    all += (rank == 0 ? "" : " && ") + ("[ -e \"$0/over" + std::to_string(rank)) + "\" ]";
  }
  return {"/bin/sh", "-c",
          "trap '' TERM; \"$@\"; code=$?; echo $code >\"$0/over$RANK\"; n=0; until " + all +
              " || [ $n -ge 24000 ]; do sleep 0.01; n=$((n+1)); done; exit $code",
          folder.string()};
}

}  // namespace holdfast::test
