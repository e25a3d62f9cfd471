#include "holdfast/base/freed_memory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace holdfast { namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kOtherAllocator = true;
#else
constexpr bool kOtherAllocator = false;
#endif

constexpr std::size_t kBlock = 48U << 20;
constexpr long kPage = 4096;

long faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

void use_a_block() {
  void* const block = std::malloc(kBlock);
  if (block == nullptr) _exit(2);
  std::memset(block, 1, kBlock);
  std::free(block);
}

// Percent of the block's pages that the third use of as much memory faults in; in a process of its own, whose
// allocator nobody else has to live with.
int faults_of_third_use(bool kept) {
  const pid_t child = fork();
  if (child == 0) {
    if (kept) keep_freed_memory();
    use_a_block();
    use_a_block();
    const long before = faults();
    use_a_block();
    _exit(static_cast<int>((faults() - before) * 100 / static_cast<long>(kBlock / kPage)));
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  return WEXITSTATUS(status);
}

TEST(FreedMemory, IsThereForTheNextStepWithoutAPageFault) {
  if (kOtherAllocator) GTEST_SKIP() << "a sanitizer brings an allocator of its own";
  if (faults_of_third_use(false) < 90) GTEST_SKIP() << "this C library keeps freed memory by itself";
  EXPECT_LE(faults_of_third_use(true), 1);
}

}}  // namespace holdfast
