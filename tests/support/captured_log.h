// Captures the library's log for a test.
//
// Threads: one; one object at a time.
#pragma once

#include <gtest/gtest.h>

#include <string>

namespace holdfast::test {

// Captures standard error while it lives.
class CapturedLog {
 public:
  CapturedLog() { testing::internal::CaptureStderr(); }
  ~CapturedLog() {
    if (!taken_) testing::internal::GetCapturedStderr();
  }
  CapturedLog(const CapturedLog&) = delete;
  CapturedLog& operator=(const CapturedLog&) = delete;
  std::string text() {
    taken_ = true;
    return testing::internal::GetCapturedStderr();
  }

 private:
  bool taken_ = false;
};

}  // namespace holdfast::test
