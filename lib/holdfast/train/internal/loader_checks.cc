#include "holdfast/train/internal/loader_checks.h"

#include <string>

#include "holdfast/base/error.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

void require_shard(const Loader& loader, const ProcessGroup& group, const char* which) {
  const Shard& shard = loader.options().shard;
  if (shard.rank == group.rank() && shard.world == group.world_size()) return;
  throw UsageError(std::string(which) + " is not divided over the ranks: give its loader .shard = {" +
                   std::to_string(group.rank()) + ", " + std::to_string(group.world_size()) + "}");
}

// With a smaller last batch, ranks without a part of it would start the next epoch while the others finish
// this one.
void require_whole_updates(const Loader& loader) {
  const LoaderOptions& options = loader.options();
  const std::int64_t update = options.batch_size * options.shard.world * options.accumulation;
  if (options.drop_last || loader.size() % update == 0) return;
  throw UsageError("the training data ends with a rest of " + std::to_string(loader.size() % update) +
                   " samples, and an update of all ranks takes " + std::to_string(update) +
                   ": give its loader .drop_last = true");
}

// A last update of fewer or smaller batches: the step takes the mean over the same number of equal ones.
void require_equal_updates(const Loader& loader, std::int64_t steps) {
  const LoaderOptions& options = loader.options();
  const std::int64_t update = options.batch_size * options.accumulation;
  if (options.drop_last || options.accumulation == 1 || loader.size() % update == 0) return;
  // A run that ends before its first epoch does never comes there.
  if (steps < loader.updates_per_epoch()) return;
  throw UsageError("an epoch of the training data ends with a rest of " +
                   std::to_string(loader.size() % update) + " samples, and an update takes " +
                   std::to_string(options.accumulation) + " batches of " +
                   std::to_string(options.batch_size) + ": give its loader .drop_last = true");
}

// An endless one would be evaluated for ever, and one of two epochs counts each sample twice.
void require_one_epoch(const Loader& test_data) {
  if (test_data.options().epochs == 1) return;
  throw UsageError("an evaluation reads the test data once: give its loader .epochs = 1, not " +
                   std::to_string(test_data.options().epochs));
}

}  // namespace

void check_training_data(const Loader& loader, const ProcessGroup* group, std::int64_t steps) {
  if (group == nullptr) return require_equal_updates(loader, steps);
  require_shard(loader, *group, "the training data");
  require_whole_updates(loader);
}

void check_test_data(const Loader& loader, const ProcessGroup* group) {
  if (group != nullptr) require_shard(loader, *group, "the test data");
  require_one_epoch(loader);
}

}}}  // namespace holdfast::v0_2::internal
