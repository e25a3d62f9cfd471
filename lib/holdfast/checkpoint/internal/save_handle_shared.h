// What a SaveHandle and the writer share about one save. It leaves `staged` once and for good; every waiter
// is woken then.
//
// Threads: any, under its mutex.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>

#include "holdfast/checkpoint/save_handle.h"

namespace holdfast::inline v1 {

struct SaveHandle::Shared {
  explicit Shared(std::int64_t at_step) : step(at_step) {}

  // `text` is the checkpoint's name, the error, or empty. The first outcome stays.
  void settle(SaveStatus outcome, std::string text);

  const std::int64_t step;
  std::mutex mutex;
  std::condition_variable settled;
  SaveStatus status = SaveStatus::staged;
  std::string text;
};

}  // namespace holdfast::inline v1
