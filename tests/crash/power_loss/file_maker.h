// What kind of files a simulated run commits: opaque ones of a few KiB, or the real format.
//
// Threads: one object a thread.
#pragma once

#include <memory>

#include "holdfast/store/checkpoint_store.h"

namespace holdfast::test::power_loss {

struct Content {
  std::int64_t step = 0;
  AttemptNumber attempt = 0;
  Ancestry ancestry = {};
  bool finite = true;
};

class FileMaker {
 public:
  virtual ~FileMaker() = default;
  // A commit of a file whose bytes follow from `content` alone.
  virtual CommitRequest request(const Content& content) = 0;
  virtual Verifier& verifier() = 0;
};

// A head of one 4 KiB block and one to three blocks of body, under digests of their own.
std::unique_ptr<FileMaker> opaque_files();
// Sealed HDF5 files of format 1, with three small tensors.
std::unique_ptr<FileMaker> real_files();

}  // namespace holdfast::test::power_loss
