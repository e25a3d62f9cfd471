// Where the data stands at each moment of a run: a table of right values for EpochOrder (with torch's DataLoader)
// and for Loader.
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/data/dataloader.h>
#include <torch/data/datasets/base.h>
#include <torch/data/datasets/map.h>
#include <torch/data/transforms/stack.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "holdfast/base/error.h"
#include "holdfast/data/loader.h"
#include "holdfast/data/torch_sampler.h"
#include "unit/data/memory_state.h"

namespace {

using holdfast::Cursor;
using holdfast::EpochOrder;
using holdfast::Loader;
using holdfast::UsageError;
using holdfast_test::MemoryState;
using testing::ElementsAreArray;

using Rows = std::vector<std::string>;

struct Ten : torch::data::datasets::Dataset<Ten> {
  torch::data::Example<> get(std::size_t index) override {
    return {at::full({}, static_cast<double>(index)), at::full({}, 0.0)};
  }
  std::optional<std::size_t> size() const override { return 10; }
};

std::string text_of(const Cursor& cursor) {
  return std::to_string(cursor.epoch) + "/" + std::to_string(cursor.samples);
}

// "-": refused.
std::string after(const EpochOrder& order, std::int64_t batches) {
  try {
    return text_of(order.after_batches(batches));
  } catch (const UsageError&) {
    return "-";
  }
}

// moment: epoch() batch() cursor() after_batches(1) after_batches(2)
std::string row(const std::string& moment, const EpochOrder& order) {
  return moment + ": " + std::to_string(order.epoch()) + " " + std::to_string(order.batch()) + " " +
         text_of(order.cursor()) + " " + after(order, 1) + " " + after(order, 2);
}

struct Trained {
  Rows rows;
  std::vector<MemoryState> boundaries;  // what a save holds after each update
};

struct Way {
  std::size_t workers = 0;
  bool drop_last = false;
  std::int64_t group = 1;  // batches of one update
};

// Two epochs of ten samples in batches of four, or the rest of them.
Trained train(EpochOrder& order, const Way& way) {
  auto loader = torch::data::make_data_loader(
      Ten().map(torch::data::transforms::Stack<>()), holdfast::TorchSampler(order),
      torch::data::DataLoaderOptions(4).workers(way.workers).drop_last(way.drop_last));
  Trained trained;
  const auto note = [&](const std::string& moment) { trained.rows.push_back(row(moment, order)); };
  note("made");
  for (const std::int64_t epoch : order.epochs(2)) {
    note("round " + std::to_string(epoch));
    std::int64_t pending = 0;
    const auto update = [&] {
      way.group == 1 ? order.applied_all_delivered() : order.applied(order.after_batches(pending));
      pending = 0;
      note("applied");
      trained.boundaries.emplace_back();
      order.save(trained.boundaries.back());
    };
    for ([[maybe_unused]] auto& batch : *loader) {
      note("in hand");
      if (++pending == way.group) update();
    }
    if (pending > 0) update();
    note("over");
  }
  note("end");
  return trained;
}

Rows whole(const Way& way) {
  EpochOrder order(10, 3);
  return train(order, way).rows;
}

const std::vector<std::size_t> kWorkers = {0, 1, 2, 5};

TEST(Moments, OfAnEpochOrderBatchByBatch) {
  for (const std::size_t workers : kWorkers) {
    EXPECT_THAT(whole({.workers = workers}), ElementsAreArray(Rows{
                                                 "made: 0 0 0/0 - -",
                                                 "round 0: 0 0 0/0 - -",
                                                 "in hand: 1 0 0/0 0/4 -",
                                                 "applied: 1 1 0/4 - -",
                                                 "in hand: 1 1 0/4 0/8 -",
                                                 "applied: 1 2 0/8 - -",
                                                 "in hand: 1 2 0/8 0/10 -",
                                                 "applied: 1 3 0/10 - -",
                                                 "over: 1 3 0/10 - -",
                                                 "round 1: 1 0 0/10 - -",
                                                 "in hand: 2 0 0/10 1/4 -",
                                                 "applied: 2 1 1/4 - -",
                                                 "in hand: 2 1 1/4 1/8 -",
                                                 "applied: 2 2 1/8 - -",
                                                 "in hand: 2 2 1/8 1/10 -",
                                                 "applied: 2 3 1/10 - -",
                                                 "over: 2 3 1/10 - -",
                                                 "end: 2 0 1/10 - -",
                                             }))
        << workers << " workers";
  }
}

TEST(Moments, OfAnEpochOrderWhoseRestIsDropped) {
  for (const std::size_t workers : kWorkers) {
    EXPECT_THAT(whole({.workers = workers, .drop_last = true}), ElementsAreArray(Rows{
                                                                    "made: 0 0 0/0 - -",
                                                                    "round 0: 0 0 0/0 - -",
                                                                    "in hand: 1 0 0/0 0/4 -",
                                                                    "applied: 1 1 0/4 - -",
                                                                    "in hand: 1 1 0/4 0/8 -",
                                                                    "applied: 1 2 0/8 - -",
                                                                    "over: 1 2 0/8 - -",
                                                                    "round 1: 1 0 0/8 - -",
                                                                    "in hand: 2 0 0/8 1/4 -",
                                                                    "applied: 2 1 1/4 - -",
                                                                    "in hand: 2 1 1/4 1/8 -",
                                                                    "applied: 2 2 1/8 - -",
                                                                    "over: 2 2 1/8 - -",
                                                                    "end: 2 0 1/8 - -",
                                                                }))
        << workers << " workers";
  }
}

// A last update of one batch comes after the pass.
TEST(Moments, OfAnEpochOrderWithGroupsOfBatches) {
  for (const std::size_t workers : kWorkers) {
    EXPECT_THAT(whole({.workers = workers, .group = 2}), ElementsAreArray(Rows{
                                                             "made: 0 0 0/0 - -",
                                                             "round 0: 0 0 0/0 - -",
                                                             "in hand: 1 0 0/0 0/4 -",
                                                             "in hand: 1 0 0/0 0/4 0/8",
                                                             "applied: 1 2 0/8 - -",
                                                             "in hand: 1 2 0/8 0/10 -",
                                                             "applied: 1 3 0/10 - -",
                                                             "over: 1 3 0/10 - -",
                                                             "round 1: 1 0 0/10 - -",
                                                             "in hand: 2 0 0/10 1/4 -",
                                                             "in hand: 2 0 0/10 1/4 1/8",
                                                             "applied: 2 2 1/8 - -",
                                                             "in hand: 2 2 1/8 1/10 -",
                                                             "applied: 2 3 1/10 - -",
                                                             "over: 2 3 1/10 - -",
                                                             "end: 2 0 1/10 - -",
                                                         }))
        << workers << " workers";
  }
}

// A resumed run begins in the round of the interrupted pass, and from its first batch on it stands where the
// uninterrupted run stood.
TEST(Moments, AfterAResumeAtEachOfThem) {
  for (const Way& way :
       {Way{}, Way{.workers = 2}, Way{.drop_last = true}, Way{.workers = 2, .drop_last = true},
        Way{.group = 2}, Way{.workers = 2, .group = 2}}) {
    EpochOrder straight(10, 3);
    const Trained all = train(straight, way);
    std::size_t boundary = 0;
    for (std::size_t at = 0; at < all.rows.size(); ++at) {
      if (!all.rows[at].starts_with("applied: ")) continue;
      EpochOrder order(10, 3);
      order.load(all.boundaries[boundary]);
      const std::int64_t epoch = order.cursor().epoch;
      // "applied: 1 2 0/8 - -" -> "0 2 0/8 - -": epoch() is that of the pass that goes on.
      const std::string stands = std::to_string(epoch) + all.rows[at].substr(all.rows[at].find(' ', 9));
      Rows expected = {"made: " + stands, "round " + std::to_string(epoch) + ": " + stands};
      expected.insert(expected.end(), all.rows.begin() + static_cast<std::ptrdiff_t>(at) + 1, all.rows.end());
      EXPECT_THAT(train(order, way).rows, ElementsAreArray(expected))
          << way.workers << " workers, group " << way.group << ", after update " << boundary;
      ++boundary;
    }
    EXPECT_EQ(boundary, all.boundaries.size());
  }
}

struct TenNumbers {
  struct Sample {
    at::Tensor value;
  };
  std::int64_t size() const { return 10; }
  Sample get(std::int64_t index) const { return {at::full({}, static_cast<double>(index))}; }
};

// moment: cursor()
Rows rows_of(Loader& loader) {
  Rows rows;
  const auto note = [&](const std::string& moment) {
    rows.push_back(moment + ": " + text_of(loader.cursor()));
  };
  note("made");
  while (const auto batch = loader.next()) {
    note("in hand of " + std::to_string(batch->epoch));
    if (!batch->completes_update) continue;
    loader.applied_all_delivered();
    note("applied");
  }
  return rows;
}

TEST(Moments, OfALoaderBatchByBatch) {
  for (const int workers : {0, 2}) {
    Loader loader(TenNumbers(), {.batch_size = 4, .epochs = 2, .drop_last = false, .workers = workers});
    EXPECT_THAT(rows_of(loader), ElementsAreArray(Rows{
                                     "made: 0/0",
                                     "in hand of 0: 0/0",
                                     "applied: 0/4",
                                     "in hand of 0: 0/4",
                                     "applied: 0/8",
                                     "in hand of 0: 0/8",
                                     "applied: 0/10",
                                     "in hand of 1: 0/10",
                                     "applied: 1/4",
                                     "in hand of 1: 1/4",
                                     "applied: 1/8",
                                     "in hand of 1: 1/8",
                                     "applied: 1/10",
                                 }));
  }
}

TEST(Moments, OfALoaderWithGroupsOfBatches) {
  for (const int workers : {0, 2}) {
    Loader loader(TenNumbers(), {.batch_size = 2, .epochs = 1, .accumulation = 2, .workers = workers});
    EXPECT_THAT(rows_of(loader), ElementsAreArray(Rows{
                                     "made: 0/0",
                                     "in hand of 0: 0/0",
                                     "in hand of 0: 0/0",
                                     "applied: 0/4",
                                     "in hand of 0: 0/4",
                                     "in hand of 0: 0/4",
                                     "applied: 0/10",
                                 }));
  }
}

TEST(Moments, OfALoaderAfterAResumeAtEachOfThem) {
  const holdfast::LoaderOptions options{.batch_size = 4, .epochs = 2, .drop_last = false};
  Loader straight(TenNumbers(), options);
  const Rows all = rows_of(straight);
  Loader stopped(TenNumbers(), options);
  for (std::size_t at = 2; at < all.size(); at += 2) {
    stopped.next();
    stopped.applied_all_delivered();
    MemoryState state;
    stopped.save(state);
    Loader resumed(TenNumbers(), options);
    resumed.load(state);
    Rows expected = {"made" + all[at].substr(all[at].find(':'))};
    expected.insert(expected.end(), all.begin() + static_cast<std::ptrdiff_t>(at) + 1, all.end());
    EXPECT_THAT(rows_of(resumed), ElementsAreArray(expected)) << "after update " << at / 2;
  }
}

}  // namespace
