// Digests of a snapshot's tensors, computed one tensor at a time: what writers must find, whatever their
// threads and pieces.
#pragma once

#include <vector>

#include "holdfast/snapshot/snapshot.h"

namespace holdfast::test {

// In layout order.
inline std::vector<Digest> tensor_digests(const Snapshot& snapshot) {
  std::vector<Digest> digests;
  for (std::size_t i = 0; i < snapshot.layout->tensors().size(); ++i) {
    digests.push_back(tensor_digest(snapshot.bytes(i)));
  }
  return digests;
}

}  // namespace holdfast::test
