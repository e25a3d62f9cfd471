#include "holdfast/data/torch_sampler.h"

#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/data/dataloader.h>
#include <torch/data/datasets/base.h>
#include <torch/data/datasets/map.h>
#include <torch/data/transforms/stack.h>
#include <torch/serialize/input-archive.h>
#include <torch/serialize/output-archive.h>

#include <sstream>

#include "holdfast/base/error.h"
#include "unit/data/memory_state.h"

namespace {

using holdfast::Cursor;
using holdfast::EpochOrder;
using holdfast::TorchSampler;
using holdfast_test::MemoryState;

struct Indices : torch::data::datasets::Dataset<Indices> {
  torch::data::Example<> get(std::size_t index) override {
    const at::Tensor value = at::tensor({static_cast<std::int64_t>(index)});
    return {value, value};
  }
  std::optional<std::size_t> size() const override { return 22; }
};

// Trains until `stop` batches have been applied; returns what the batches held.
std::vector<std::vector<std::int64_t>> train(EpochOrder& order, std::size_t workers, int epochs,
                                             std::size_t stop) {
  auto loader =
      torch::data::make_data_loader(Indices().map(torch::data::transforms::Stack<>()), TorchSampler(order),
                                    torch::data::DataLoaderOptions(4).workers(workers).drop_last(true));
  std::vector<std::vector<std::int64_t>> all;
  for (int epoch = static_cast<int>(order.cursor().epoch); epoch < epochs; ++epoch) {
    for (auto& batch : *loader) {
      if (all.size() == stop) return all;
      const at::Tensor flat = batch.data.reshape({-1});
      all.emplace_back(flat.data_ptr<std::int64_t>(), flat.data_ptr<std::int64_t>() + flat.numel());
      order.applied(order.after(flat.numel()));
    }
  }
  return all;
}

TEST(TorchSampler, ResumesATorchDataLoaderExactly) {
  EpochOrder straight(22, 8);
  const auto expected = train(straight, 0, 3, 1000);
  ASSERT_EQ(expected.size(), 15u);
  for (const std::size_t workers : {0, 2}) {
    for (std::size_t stop = 0; stop < expected.size(); ++stop) {
      EpochOrder first(22, 8);
      auto got = train(first, workers, 3, stop);
      MemoryState state;
      first.save(state);
      EpochOrder second(22, 8);
      second.load(state);
      for (auto& batch : train(second, 2 - workers, 3, 1000)) got.push_back(batch);
      EXPECT_EQ(got, expected) << "stopped after " << stop;
    }
  }
}

TEST(TorchSampler, HasTheLoadersOrder) {
  EpochOrder order(22, 8);
  TorchSampler sampler(order);
  sampler.reset();
  const holdfast::Permutation permutation(8, 0, 22);
  const auto batch = sampler.next(5);
  ASSERT_TRUE(batch);
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ((*batch)[i], static_cast<std::size_t>(permutation(static_cast<std::int64_t>(i))));
  }
  EXPECT_EQ(sampler.next(100)->size(), 17u);
  EXPECT_FALSE(sampler.next(5));
}

// Each takes its part of each global batch; another number of ranks goes on at the same sample. Where not all
// have a whole batch the epoch ends.
TEST(TorchSampler, RanksShareTheOrder) {
  constexpr std::int64_t kSize = 26, kGlobal = 12, kEpochs = 2;
  const auto train = [](EpochOrder& order, int workers, int stop) {
    const std::int64_t batch = kGlobal / order.shard().world;
    const auto loader =
        torch::data::make_data_loader(Indices().map(torch::data::transforms::Stack<>()), TorchSampler(order),
                                      torch::data::DataLoaderOptions(static_cast<std::size_t>(batch))
                                          .workers(static_cast<std::size_t>(workers)));
    std::vector<std::vector<std::int64_t>> updates;
    for ([[maybe_unused]] const std::int64_t epoch : order.epochs(kEpochs)) {
      for (auto& drawn : *loader) {
        if (stop-- == 0) return updates;
        const auto* const samples = drawn.data.const_data_ptr<std::int64_t>();
        updates.emplace_back(samples, samples + drawn.data.numel());
        order.applied_all_delivered();
      }
    }
    return updates;
  };
  std::vector<std::vector<std::int64_t>> expected;
  for (const std::int64_t epoch : {0, 1}) {
    const holdfast::Permutation permutation(8, static_cast<std::uint32_t>(epoch), kSize);
    for (std::int64_t at = 0; at + kGlobal <= kSize; at += kGlobal) {
      expected.emplace_back();
      for (std::int64_t i = at; i < at + kGlobal; ++i) expected.back().push_back(permutation(i));
    }
  }
  for (const int workers : {0, 2}) {
    for (int stop = 0; stop <= 4; ++stop) {
      std::vector<std::vector<std::int64_t>> got(expected.size());
      MemoryState state;
      for (const std::int64_t rank : {0, 1, 2}) {
        EpochOrder order(kSize, 8, {.shard = {rank, 3}, .batch_size = 4});
        std::size_t update = 0;
        for (const auto& part : train(order, workers, stop)) {
          got[update].insert(got[update].end(), part.begin(), part.end());
          ++update;
        }
        order.save(state);
      }
      EXPECT_EQ(state.get_int("batch_size"), kGlobal);
      for (const std::int64_t rank : {0, 1}) {
        EpochOrder order(kSize, 8, {.shard = {rank, 2}, .batch_size = 6});
        order.load(state);
        auto update = static_cast<std::size_t>(stop);
        for (const auto& part : train(order, workers, 1000)) {
          got[update].insert(got[update].end(), part.begin(), part.end());
          ++update;
        }
      }
      EXPECT_EQ(got, expected) << workers << " workers, stopped after " << stop;
    }
  }
  EXPECT_THROW(EpochOrder(kSize, 8, {.shard = {2, 2}}), holdfast::UsageError);
}

TEST(TorchSampler, SavesThroughTorchsArchives) {
  EpochOrder order(22, 8);
  TorchSampler sampler(order);
  sampler.reset();
  sampler.next(6);
  order.applied(order.after(6));
  std::stringstream stream;
  torch::serialize::OutputArchive out;
  sampler.save(out);
  out.save_to(stream);
  EpochOrder other(22, 8);
  TorchSampler resumed(other);
  torch::serialize::InputArchive in;
  in.load_from(stream);
  resumed.load(in);
  EXPECT_EQ(other.cursor(), (Cursor{0, 6}));
  resumed.reset();
  EXPECT_EQ(resumed.next(4), sampler.next(4));
}

// What a DataLoader without workers asks for.
void deliver(TorchSampler& sampler, int batches) {
  for (int i = 0; i < batches; ++i) sampler.next(4);
}

TEST(TorchSampler, SeveralBatchesAnUpdateAreReported) {
  EpochOrder order(22, 8);
  TorchSampler sampler(order);
  sampler.reset();
  deliver(sampler, 2);
  EXPECT_EQ(order.after_batches(2), (Cursor{0, 8}));
  EXPECT_THROW(order.after_batches(3), holdfast::UsageError);
  EXPECT_THROW(order.after_batches(0), holdfast::UsageError);
  order.applied(order.after_batches(2));
  deliver(sampler, 1);
  order.applied_all_delivered();
  EXPECT_EQ(order.cursor(), (Cursor{0, 12}));
  EXPECT_EQ(order.batch(), 3);
  deliver(sampler, 2);
  EXPECT_THROW(order.applied_all_delivered(), holdfast::UsageError);
  EXPECT_EQ(order.cursor(), (Cursor{0, 12}));
}

TEST(TorchSampler, AnEpochIsLeftEarlyOnlyOnPurpose) {
  EpochOrder order(22, 8);
  TorchSampler sampler(order);
  sampler.reset();
  deliver(sampler, 1);
  order.applied_all_delivered();
  EXPECT_THROW(sampler.reset(), holdfast::UsageError);
  order.skip_rest();
  EXPECT_EQ(order.cursor(), (Cursor{0, 22}));
  EXPECT_EQ(order.epoch(), 1);
  sampler.reset();
  EXPECT_EQ(order.batch(), 0);
  deliver(sampler, 6);
  EXPECT_EQ(order.epoch(), 2);
  order.applied(order.after_batches(5));
  sampler.reset();  // the smaller batch may have been dropped
}

// The last wanted batch says so before its update, so that a run that resumes there trains no other.
TEST(TorchSampler, TheRestIsLeftOutWithTheUpdateOfTheLastWantedBatch) {
  const auto train = [](EpochOrder& order, int stop) {
    TorchSampler sampler(order);
    std::vector<std::int64_t> batches;
    for (const std::int64_t epoch : order.epochs(3)) {
      sampler.reset();
      while (sampler.next(4)) {
        if (order.batch() == 1) order.skip_rest();
        batches.push_back(10 * epoch + order.batch());
        order.applied_all_delivered();
        if (--stop == 0) return batches;
      }
    }
    return batches;
  };
  for (const int stop : {1, 2, 3, 4, 5, 6}) {
    EpochOrder order(22, 8, {.batch_size = 4});
    auto batches = train(order, stop);
    MemoryState state;
    order.save(state);
    EpochOrder resumed(22, 8, {.batch_size = 4});
    resumed.load(state);
    for (const std::int64_t batch : train(resumed, 1000)) batches.push_back(batch);
    EXPECT_EQ(batches, (std::vector<std::int64_t>{0, 1, 10, 11, 20, 21})) << "stopped after " << stop;
  }
}

TEST(TorchSampler, TheLoopOverEpochsBeginsWhereTheRunContinues) {
  EpochOrder order(8, 8);
  MemoryState state;
  state.put("epoch", std::int64_t{1});
  state.put("samples", std::int64_t{4});
  order.load(state);
  TorchSampler sampler(order);
  std::vector<std::int64_t> epochs;
  for (const std::int64_t epoch : order.epochs(4)) {
    epochs.push_back(epoch);
    sampler.reset();
    while (sampler.next(4)) order.applied_all_delivered();
  }
  EXPECT_EQ(epochs, (std::vector<std::int64_t>{1, 2, 3}));
  for ([[maybe_unused]] const std::int64_t epoch : order.epochs(4)) ADD_FAILURE() << "all are done";
  const auto without_a_pass = [&] {
    for ([[maybe_unused]] const std::int64_t epoch : order.epochs(6)) continue;
  };
  EXPECT_THROW(without_a_pass(), holdfast::UsageError);
}

auto loader_of(EpochOrder& order, const torch::data::DataLoaderOptions& options) {
  return torch::data::make_data_loader(Indices().map(torch::data::transforms::Stack<>()), TorchSampler(order),
                                       options);
}

template <class F>
std::string usage_error(F&& f) {
  try {
    f();
  } catch (const holdfast::UsageError& error) {
    return error.what();
  }
  return "no UsageError";
}

TEST(TorchSampler, RefusesADataLoaderThatLosesTheOrder) {
  using torch::data::DataLoaderOptions;
  EpochOrder order(22, 8);
  EXPECT_THAT(usage_error([&] { loader_of(order, DataLoaderOptions(4).workers(2).enforce_ordering(false)); }),
              testing::AllOf(testing::HasSubstr("enforce_ordering(false) and 2 workers"),
                             testing::HasSubstr("leave enforce_ordering at its default")));
  EXPECT_THAT(usage_error([&] { loader_of(order, DataLoaderOptions(4).max_jobs(3)); }),
              testing::HasSubstr("workers(0) and max_jobs(3)"));
  EXPECT_THAT(usage_error([&] { loader_of(order, DataLoaderOptions(4).workers(1).max_jobs(0)); }),
              testing::HasSubstr("workers(1) and max_jobs(0)"));
  EXPECT_THAT(usage_error([&] { loader_of(order, DataLoaderOptions(0)); }), testing::HasSubstr("batch size"));
  // Without workers there is one order.
  EXPECT_EQ(train(order, 0, 1, 1000).size(), 5U);
  EpochOrder other(22, 8);
  std::int64_t batches = 0;
  const auto loader = loader_of(other, DataLoaderOptions(4).enforce_ordering(false));
  for ([[maybe_unused]] auto& batch : *loader) {
    other.applied_all_delivered();
    ++batches;
  }
  EXPECT_EQ(batches, 6);
}

TEST(TorchSampler, NoUpdateAppliesABatchThatAWorkerHasDrawnAhead) {
  EpochOrder order(22, 8);
  auto loader = loader_of(order, torch::data::DataLoaderOptions(4).workers(2));
  for ([[maybe_unused]] auto& batch : *loader) {
    EXPECT_THROW(order.after_batches(2), holdfast::UsageError);
    EXPECT_THROW(order.applied(order.after(5)), holdfast::UsageError);
    order.applied(order.after_batches(1));
    EXPECT_THROW(order.after_batches(1), holdfast::UsageError);
  }
  EXPECT_EQ(order.cursor(), (Cursor{0, 22}));
}

TEST(TorchSampler, ALoopMayTakeTheNextBatchAhead) {
  for (const std::size_t workers : {0, 2}) {
    EpochOrder order(22, 8);
    auto loader = loader_of(order, torch::data::DataLoaderOptions(4).workers(workers));
    std::int64_t applied = 0;
    for (auto next = loader->begin(); next != loader->end();) {
      applied += next->data.size(0);
      ++next;
      order.applied(order.after_batches(1));
      EXPECT_EQ(order.cursor(), (Cursor{0, applied}));
    }
    EXPECT_EQ(applied, 22);
  }
}

TEST(TorchSampler, RefusesResetAndDeliveriesOutOfPlace) {
  EpochOrder order(22, 8);
  TorchSampler sampler(order);
  EXPECT_THROW(sampler.reset(23), holdfast::UsageError);
  EXPECT_THROW(order.applied({0, 4}), holdfast::UsageError);
  EXPECT_THROW(order.applied_all_delivered(), holdfast::UsageError);
  EXPECT_THROW(EpochOrder(0, 1), holdfast::UsageError);
  MemoryState state;
  state.put("epoch", std::int64_t{0});
  state.put("samples", std::int64_t{23});
  EXPECT_THROW(order.load(state), holdfast::RefusedError);
}

}  // namespace
