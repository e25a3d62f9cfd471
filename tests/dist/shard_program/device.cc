#include <csignal>
#include <thread>

#include "dist/shard_program/scenarios.h"
#include "holdfast/distributed/internal/nccl_backend.h"

namespace holdfast::test {
namespace {

// What c10d's watchdog finds where a partner is gone; no GPU takes part.
struct HungNccl final : c10d::Backend {
  using c10d::Backend::Backend;
  const std::string getBackendName() const override { return "nccl"; }
  c10d::ErrorType getError() override { return c10d::ErrorType::TIMEOUT; }
};

}  // namespace

int hangs_on_device(bool returns) {
  using namespace std::chrono_literals;
  make_nccl_by(
      [](int rank, int world_size) -> c10::intrusive_ptr<c10d::Backend> {
        return c10::make_intrusive<HungNccl>(rank, world_size);
      },
      returns ? Duration(10min) : Duration(200ms));
  ProcessGroup group({.device = c10::Device(c10::kCUDA, 0), .start_timeout = 5min});
  if (group.rank() == 1) std::raise(SIGKILL);
  while (true) {
    if (returns) group.guard("gradients", [] {});
    std::this_thread::sleep_for(returns ? Duration(10ms) : Duration(1h));
  }
}

}  // namespace holdfast::test
