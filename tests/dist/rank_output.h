// What ranks that `holdfast launch` started have printed: their lines carry a prefix "[rank] ".
#pragma once

#include <string>
#include <vector>

#include "support/subprocess.h"

namespace holdfast::test {

// What every rank printed after that word, in rank order.
inline std::vector<std::string> said(const Ended& ended, int ranks, const std::string& word) {
  std::vector<std::string> answers;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string prefix = "[" + std::to_string(rank) + "] " + word + " ";
    for (const std::string& line : lines_of(ended.out)) {
      if (line.starts_with(prefix)) answers.push_back(line.substr(prefix.size()));
    }
  }
  return answers;
}

}  // namespace holdfast::test
