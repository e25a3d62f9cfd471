#include "holdfast/data/loader.h"

#include <ATen/ops/complex.h>
#include <ATen/ops/conj.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/imag.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/data/example.h>

#include <atomic>
#include <chrono>
#include <set>
#include <thread>

#include "holdfast/base/error.h"
#include "holdfast/data/pictures.h"
#include "holdfast/data/synthetic.h"
#include "unit/data/memory_state.h"

namespace {

using holdfast::Batch;
using holdfast::Cursor;
using holdfast::Loader;
using holdfast::LoaderOptions;
using holdfast::SampleRandom;
using holdfast::UsageError;
using holdfast_test::MemoryState;
using testing::HasSubstr;

struct Sample {
  at::Tensor value;
  std::int64_t index;
};

// Sample i is (a random number of its own, i), some of them slow.
class Numbers {
 public:
  explicit Numbers(std::int64_t size) : size_(size) {}
  std::int64_t size() const { return size_; }
  Sample get(std::int64_t index, SampleRandom& random) const {
    if (index % 7 == 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
    return {at::full({2}, random.uniform()), index};
  }

 private:
  std::int64_t size_;
};

std::string text_of(const Batch& batch) {
  std::string text = std::to_string(batch.cursor.epoch) + "/" + std::to_string(batch.cursor.samples) + ":";
  for (std::int64_t i = 0; i < batch.targets.size(0); ++i) {
    text += " " + std::to_string(batch.targets[i].item<std::int64_t>()) + "=" +
            std::to_string(batch.inputs[i][1].item<double>());
  }
  return text;
}

std::vector<std::string> rest_of(Loader& loader) {
  std::vector<std::string> all;
  while (const auto batch = loader.next()) all.push_back(text_of(*batch));
  return all;
}

TEST(Loader, DeliversTheSameBatchesForAnyWorkersAndPrefetch) {
  Loader reference(Numbers(45), {.batch_size = 4, .epochs = 3, .seed = 9, .workers = 0});
  const auto expected = rest_of(reference);
  ASSERT_EQ(expected.size(), 33u);
  for (const int workers : {0, 1, 2, 5}) {
    for (const int prefetch : {0, 1, 3, 50}) {
      Loader loader(Numbers(45),
                    {.batch_size = 4, .epochs = 3, .seed = 9, .workers = workers, .prefetch = prefetch});
      EXPECT_EQ(rest_of(loader), expected) << workers << " workers, prefetch " << prefetch;
    }
  }
}

TEST(Loader, SeedsAndEpochsHaveOrdersOfTheirOwn) {
  Loader a(Numbers(40), {.batch_size = 40, .epochs = 2, .seed = 1});
  Loader b(Numbers(40), {.batch_size = 40, .epochs = 2, .seed = 2});
  const auto first = a.next();
  const auto second = a.next();
  const auto other = b.next();
  EXPECT_FALSE(first->targets.equal(second->targets));
  EXPECT_FALSE(first->targets.equal(other->targets));
  EXPECT_FALSE(second->targets.equal(other->targets));
}

TEST(Loader, WithoutShufflingTheOrderIsTheDataSets) {
  Loader loader(Numbers(5), {.batch_size = 2, .epochs = 1, .shuffle = false, .drop_last = false});
  std::vector<std::int64_t> seen;
  while (const auto batch = loader.next()) {
    for (std::int64_t i = 0; i < batch->targets.size(0); ++i)
      seen.push_back(batch->targets[i].item<std::int64_t>());
  }
  EXPECT_EQ(seen, (std::vector<std::int64_t>{0, 1, 2, 3, 4}));
}

TEST(Loader, EveryEpochHoldsEverySampleOnce) {
  Loader loader(Numbers(30), {.batch_size = 5, .epochs = 2});
  std::vector<int> seen(60);
  while (const auto batch = loader.next()) {
    for (std::int64_t i = 0; i < 5; ++i)
      ++seen[static_cast<std::size_t>(30 * batch->epoch + batch->targets[i].item<std::int64_t>())];
    EXPECT_EQ(batch->last_in_epoch, batch->cursor.samples == 30);
  }
  EXPECT_EQ(seen, std::vector<int>(60, 1));
}

// The heart of it: stop after any number of updates, save what was applied, resume in a fresh loader of
// another shape, and get exactly the batches that would have come.
TEST(Loader, ResumesExactlyForAnyWorkersAndPrefetch) {
  const LoaderOptions base{.batch_size = 4, .epochs = 3, .seed = 5};
  Loader reference(Numbers(22), base);
  const auto expected = rest_of(reference);
  ASSERT_EQ(expected.size(), 15u);
  const std::vector<std::pair<int, int>> shapes{{0, 0}, {1, 1}, {2, 8}, {3, 2}};
  for (const auto& [workers, prefetch] : shapes) {
    for (const auto& [later_workers, later_prefetch] : shapes) {
      for (std::size_t stop = 0; stop <= expected.size(); stop += 2) {
        LoaderOptions options = base;
        options.workers = workers;
        options.prefetch = prefetch;
        MemoryState state;
        {
          Loader loader(Numbers(22), options);
          for (std::size_t i = 0; i < stop; ++i) loader.applied(loader.next()->cursor);
          if (stop < expected.size()) loader.next();  // delivered, never applied: must come again
          loader.save(state);
        }
        options.workers = later_workers;
        options.prefetch = later_prefetch;
        Loader loader(Numbers(22), options);
        loader.load(state);
        EXPECT_EQ(rest_of(loader),
                  std::vector(expected.begin() + static_cast<std::ptrdiff_t>(stop), expected.end()))
            << "after " << stop << ", " << workers << " then " << later_workers << " workers";
      }
    }
  }
}

// What a loop over epochs does, work after each epoch included. Stopped after so many batches.
std::vector<std::string> epochs_of(Loader& loader, std::size_t stop = 1000) {
  std::vector<std::string> all;
  std::size_t batches = 0;
  for (const std::int64_t epoch : loader.epochs()) {
    while (const auto batch = loader.next()) {
      EXPECT_EQ(batch->epoch, epoch);
      all.push_back(text_of(*batch));
      loader.applied(batch->cursor);
      if (++batches == stop) return all;
    }
    all.push_back("work after epoch " + std::to_string(epoch));
  }
  return all;
}

// The checkpoint of an epoch's last batch has none of the work after it.
TEST(Loader, ALoopOverEpochsDoesTheWorkAfterEachEpochOnceWhereverItResumes) {
  for (const std::int64_t size : {12, 14}) {
    for (const bool drop_last : {true, false}) {
      for (const std::int64_t rank : {0, 1}) {
        for (const int workers : {0, 2}) {
          const holdfast::LoaderOptions options{.batch_size = 2,
                                                .epochs = 3,
                                                .seed = 9,
                                                .drop_last = drop_last,
                                                .workers = workers,
                                                .shard = {.rank = rank, .world = 2}};
          Loader straight(Numbers(size), options);
          const auto expected = epochs_of(straight);
          const auto batches = static_cast<std::size_t>(straight.batches_per_epoch()) * 3;
          ASSERT_EQ(expected.size(), batches + 3);
          for (std::size_t stop = 1; stop <= batches; ++stop) {
            Loader first(Numbers(size), options);
            auto got = epochs_of(first, stop);
            MemoryState state;
            first.save(state);
            Loader second(Numbers(size), options);
            second.load(state);
            for (const std::string& row : epochs_of(second)) got.push_back(row);
            EXPECT_EQ(got, expected) << size << " samples, stopped after " << stop << ", rank " << rank;
          }
        }
      }
    }
  }
}

TEST(Loader, ALoopOverEpochsEndsByAStopAndIsNotLeftEarly) {
  Loader loader(Numbers(12), {.batch_size = 4, .seed = 9});  // endless
  std::int64_t rounds = 0;
  for ([[maybe_unused]] const std::int64_t epoch : loader.epochs()) {
    ++rounds;
    while (loader.next()) {
      if (rounds < 3) continue;
      loader.told_to_stop();
      break;
    }
  }
  EXPECT_EQ(rounds, 3);
  Loader left(Numbers(12), {.batch_size = 4, .seed = 9});
  const auto leave = [&] {
    for ([[maybe_unused]] const std::int64_t epoch : left.epochs()) left.next();
  };
  EXPECT_THROW(leave(), holdfast::UsageError);
  // The habit of loops that count batches themselves.
  Loader broken(Numbers(12), {.batch_size = 4, .epochs = 2});
  std::string order;
  for (const std::int64_t epoch : broken.epochs()) {
    order += "epoch " + std::to_string(epoch) + ":";
    for (auto batch = broken.next(); batch; batch = broken.next()) {
      order += " " + std::to_string(batch->epoch);
      if (batch->last_in_epoch) break;
    }
    order += "; ";
  }
  EXPECT_EQ(order, "epoch 0: 0 0 0; epoch 1: 1 1 1; ");
}

TEST(Loader, LoadsInTheMiddleOfItsOwnWork) {
  Loader loader(Numbers(40), {.batch_size = 4, .epochs = 1, .workers = 3});
  std::vector<std::string> first{text_of(*loader.next()), text_of(*loader.next())};
  MemoryState state;
  loader.save(state);
  loader.applied(loader.next()->cursor);
  loader.load(state);
  EXPECT_EQ(loader.cursor(), (Cursor{0, 0}));
  loader.applied_all_delivered();  // nothing: load() forgets the batches delivered before it
  EXPECT_EQ(loader.cursor(), (Cursor{0, 0}));
  EXPECT_EQ(text_of(*loader.next()), first[0]);
  loader.restart();
  EXPECT_EQ(text_of(*loader.next()), first[0]);
  EXPECT_EQ(text_of(*loader.next()), first[1]);
}

// While workers still take slices of the old order: none may take one of the new order and lose it.
TEST(Loader, LoadsAndRestartsUnderBusyWorkers) {
  Loader loader(Numbers(40), {.batch_size = 2, .workers = 3, .prefetch = 64});
  MemoryState state;
  loader.save(state);
  const auto first = text_of(*loader.next());
  for (int i = 0; i < 1000; ++i) {
    loader.load(state);
    ASSERT_EQ(text_of(*loader.next()), first) << "after load " << i;
    loader.restart();
    ASSERT_EQ(text_of(*loader.next()), first) << "after restart " << i;
  }
}

TEST(Loader, RestartRepeatsAnEvaluation) {
  Loader loader(Numbers(10),
                {.batch_size = 4, .epochs = 1, .shuffle = false, .drop_last = false, .workers = 2});
  const auto once = rest_of(loader);
  EXPECT_EQ(once.size(), 3u);
  EXPECT_FALSE(loader.next());
  loader.restart();
  EXPECT_EQ(rest_of(loader), once);
}

TEST(Loader, RecordsOptionsAndTheAppliedCursor) {
  Loader loader(Numbers(40), {.batch_size = 4, .seed = 12, .workers = 2});
  loader.applied(loader.next()->cursor);
  loader.next();  // delivered, not applied
  MemoryState state;
  loader.save(state);
  EXPECT_EQ(state.get_int("epoch"), 0);
  EXPECT_EQ(state.get_int("samples"), 4);
  EXPECT_EQ(loader.cursor(), (Cursor{0, 4}));
  EXPECT_EQ(state.get_int("seed"), 12);
  EXPECT_EQ(state.get_int("batch_size"), 4);
  EXPECT_THAT(state.get_string("fingerprint"), HasSubstr("size 40"));
  for (const char* name : {"batch_size", "seed", "shuffle", "drop_last", "size", "fingerprint"}) {
    EXPECT_TRUE(state.options.contains(name)) << name;
  }
  for (const char* name : {"epoch", "samples", "workers", "prefetch", "epochs", "accumulation"}) {
    EXPECT_FALSE(state.options.contains(name)) << name;
  }
}

TEST(Loader, RanksShareOneGlobalOrderAndOneState) {
  Loader whole(Numbers(24), {.batch_size = 6, .epochs = 1, .seed = 3});
  Loader left(Numbers(24), {.batch_size = 3, .epochs = 1, .seed = 3, .shard = {0, 2}});
  Loader right(Numbers(24), {.batch_size = 3, .epochs = 1, .seed = 3, .shard = {1, 2}});
  while (const auto batch = whole.next()) {
    const auto a = left.next();
    const auto b = right.next();
    EXPECT_TRUE(batch->targets.slice(0, 0, 3).equal(a->targets));
    EXPECT_TRUE(batch->targets.slice(0, 3, 6).equal(b->targets));
    EXPECT_TRUE(batch->inputs.slice(0, 3, 6).equal(b->inputs));
    EXPECT_EQ(batch->cursor, a->cursor);
    EXPECT_EQ(batch->cursor, b->cursor);
  }
  MemoryState states[2];
  whole.save(states[0]);
  right.save(states[1]);
  EXPECT_TRUE(states[0].values == states[1].values);
}

// Whatever the division: 12 samples an update.
TEST(Loader, TheBatchOfAnUpdateIsRecordedWhole) {
  for (const auto& [batch, accumulation, world] :
       std::vector<std::array<std::int64_t, 3>>{{12, 1, 1}, {4, 3, 1}, {3, 1, 4}, {2, 2, 3}}) {
    const Loader loader(Numbers(24),
                        {.batch_size = batch, .accumulation = accumulation, .shard = {world - 1, world}});
    MemoryState state;
    loader.save(state);
    EXPECT_EQ(state.get_int("batch_size"), 12);
    EXPECT_EQ(state.get_int("accumulation"), accumulation) << "for checkpoints that had it as an option";
  }
}

TEST(Loader, AppliedMustHaveBeenDelivered) {
  Loader loader(Numbers(40), {.batch_size = 4});
  EXPECT_THROW(loader.applied({0, 4}), UsageError);
  const auto first = loader.next();
  const auto second = loader.next();
  EXPECT_NO_THROW(loader.applied(second->cursor));
  EXPECT_THROW(loader.applied(first->cursor), UsageError);
}

TEST(Loader, AnEpochsEndMayBeReportedAsTheNextEpochsBeginning) {
  Loader loader(Numbers(8), {.batch_size = 8});
  loader.next();
  EXPECT_NO_THROW(loader.applied({1, 0}));
}

TEST(Loader, TwoBatchesBetweenUpdatesNeedAccumulation) {
  Loader loader(Numbers(40), {.batch_size = 4});
  EXPECT_NO_THROW(loader.applied_all_delivered());  // an update without data
  loader.next();
  loader.applied_all_delivered();
  EXPECT_EQ(loader.cursor(), (Cursor{0, 4}));
  loader.next();
  loader.next();
  EXPECT_THROW(loader.applied_all_delivered(), UsageError);
}

TEST(Loader, DeclaredAccumulationTakesExactlyThatMany) {
  Loader loader(Numbers(40), {.batch_size = 4, .accumulation = 3});
  EXPECT_FALSE(loader.next()->completes_update);
  EXPECT_THROW(loader.applied_all_delivered(), UsageError);
  EXPECT_FALSE(loader.next()->completes_update);
  EXPECT_TRUE(loader.next()->completes_update);
  loader.applied_all_delivered();
  EXPECT_EQ(loader.cursor(), (Cursor{0, 12}));
  EXPECT_EQ(loader.updates_per_epoch(), 3);
  EXPECT_EQ(loader.batches_per_epoch(), 9);
}

struct Broken {
  std::int64_t size() const { return 20; }
  at::Tensor get(std::int64_t index) const {
    if (index == 13) throw std::runtime_error("disk on fire\nstack trace");
    return at::full({1}, index);
  }
};

TEST(Loader, AFailingSampleIsNamedAtItsPlaceInTheOrder) {
  for (const int workers : {0, 3}) {
    Loader loader(Broken{}, {.batch_size = 2, .epochs = 1, .shuffle = false, .workers = workers});
    for (int i = 0; i < 6; ++i) EXPECT_TRUE(loader.next());
    for (int i = 0; i < 2; ++i) {
      try {
        loader.next();
        FAIL() << "no error";
      } catch (const holdfast::Error& error) {
        EXPECT_STREQ(error.what(), "the data set's get(13) failed: disk on fire");
      }
    }
    loader.restart();
    EXPECT_TRUE(loader.next());
  }
}

struct Refusing {
  std::int64_t size() const { return 20; }
  at::Tensor get(std::int64_t index) const {
    if (index == 3) throw holdfast::RefusedError("shard 3 is gone");
    return at::full({1}, index);
  }
};

TEST(Loader, KeepsTheTypeOfHoldfastsOwnErrors) {
  Loader loader(Refusing{}, {.batch_size = 4, .shuffle = false, .workers = 1});
  EXPECT_THROW(loader.next(), holdfast::RefusedError);
}

struct Ragged {
  std::int64_t size() const { return 8; }
  at::Tensor get(std::int64_t index) const { return at::full({index == 5 ? 3 : 2}, 1.0); }
};

TEST(Loader, SaysWhichSampleHasAnotherShape) {
  Loader loader(Ragged{}, {.batch_size = 4, .shuffle = false});
  loader.next();
  try {
    loader.next();
    FAIL() << "no error";
  } catch (const holdfast::Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("sample 5 is Float[3], that of sample 4 is Float[2]"));
  }
}

TEST(Loader, EndsWithWorkersInTheMiddleOfABatch) {
  for (int round = 0; round < 20; ++round) {
    Loader loader(Numbers(1000), {.batch_size = 8, .workers = 4});
    for (int i = 0; i < round % 4; ++i) loader.next();
  }
}

TEST(Loader, RefusesWhatCannotWork) {
  EXPECT_THROW(Loader(Numbers(10), {.batch_size = 11}), UsageError);
  EXPECT_THROW(Loader(Numbers(10), {.batch_size = 2, .workers = -1}), UsageError);
  EXPECT_THROW(Loader(Numbers(10), {.batch_size = 2, .prefetch = -1}), UsageError);
  EXPECT_THROW(Loader(Numbers(0), {.batch_size = 2}), UsageError);
  Loader loader(Numbers(10), {.batch_size = 2});
  MemoryState state;
  EXPECT_THROW(loader.load(state), holdfast::RefusedError);
  state.put("epoch", std::int64_t{0});
  state.put("samples", std::int64_t{11});
  EXPECT_THROW(loader.load(state), holdfast::RefusedError);
}

TEST(Loader, ABatchThatIsKeptIsNotWrittenTo) {
  Loader loader(holdfast::PictureDataset(holdfast::synthetic_pictures(64).train, {}),
                {.batch_size = 4, .epochs = 4, .workers = 2});
  std::vector<Batch> kept;
  std::vector<at::Tensor> views;
  std::vector<at::Tensor> copies;
  std::vector<at::Tensor> view_copies;
  std::int64_t count = 0;
  while (auto batch = loader.next()) {
    if (++count % 3 == 0) {
      copies.push_back(batch->inputs.clone());
      kept.push_back(std::move(*batch));
    } else if (count % 3 == 1) {
      views.push_back(batch->inputs[2]);  // keeps the memory alive although the batch is gone
      view_copies.push_back(views.back().clone());
    }
  }
  for (std::size_t i = 0; i < kept.size(); ++i) EXPECT_TRUE(kept[i].inputs.equal(copies[i]));
  for (std::size_t i = 0; i < views.size(); ++i) EXPECT_TRUE(views[i].equal(view_copies[i]));
}

TEST(TensorPool, UsesMemoryAgainOnceNobodyHoldsIt) {
  holdfast::TensorPool pool;
  at::Tensor first = pool.take({4, 5}, at::kFloat);
  const void* memory = first.const_data_ptr();
  at::Tensor second = pool.take({4, 5}, at::kFloat);
  EXPECT_NE(second.const_data_ptr(), memory);
  first.set_requires_grad(true);
  const at::Tensor view = first.detach()[0];
  first = at::Tensor();
  EXPECT_NE(pool.take({4, 5}, at::kFloat).const_data_ptr(), memory);
}

TEST(TensorPool, GivesBackAFreshTensorOverOldMemory) {
  holdfast::TensorPool pool;
  at::Tensor first = pool.take({4, 5}, at::kFloat);
  const void* memory = first.const_data_ptr();
  first.set_requires_grad(true);
  first = at::Tensor();
  const at::Tensor again = pool.take({10, 2}, at::kFloat);
  EXPECT_EQ(again.const_data_ptr(), memory);
  EXPECT_FALSE(again.requires_grad());
  EXPECT_EQ(again.sizes(), (at::IntArrayRef{10, 2}));
}

TEST(TensorPool, KeepsNoMoreBlocksThanAreInUseAtOnce) {
  holdfast::TensorPool pool;
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> blocks;
  for (std::int64_t longest = 1; longest <= 100; ++longest) {
    const at::Tensor inputs = pool.take({4, longest}, at::kFloat);
    const at::Tensor targets = pool.take({4}, at::kLong);
    for (const at::Tensor& tensor : {inputs, targets}) {
      blocks.push_back(tensor.storage().getWeakStorageImpl());
    }
  }
  std::set<const c10::StorageImpl*> alive;
  for (const auto& block : blocks) {
    if (const auto storage = block.lock()) alive.insert(storage.get());
  }
  EXPECT_THAT(alive, testing::SizeIs(2));
}

// The shapes of data sets that are understood.
struct ThreeFields {
  struct Item {
    at::Tensor words;
    at::Tensor mask;
    bool positive;
  };
  std::int64_t size() const { return 6; }
  Item get(std::int64_t index) const { return {at::full({3}, index), at::full({3}, true), index % 2 == 0}; }
};
struct Pairs {
  std::size_t size() const { return 6; }
  std::pair<at::Tensor, float> get(std::size_t index) const {
    return {at::full({3}, 1.0), static_cast<float>(index)};
  }
};
struct TorchStyle {  // the shape of a torch::data::datasets::Dataset: get is not const, size is an optional
  std::optional<std::size_t> size() const { return 6; }
  torch::data::Example<> get(std::size_t index) {
    return {at::full({3}, 1.0), at::full({}, static_cast<std::int64_t>(index))};
  }
};

TEST(Loader, UnderstandsStructsTuplesAndTorchsExamples) {
  const LoaderOptions options{.batch_size = 6, .epochs = 1, .shuffle = false};
  Loader structs(ThreeFields{}, options);
  const auto batch = structs.next();
  ASSERT_EQ(batch->fields.size(), 3u);
  EXPECT_EQ(batch->inputs.sizes(), (at::IntArrayRef{6, 3}));
  EXPECT_EQ(batch->fields[1].scalar_type(), at::kBool);
  EXPECT_EQ(batch->targets.scalar_type(), at::kBool);
  EXPECT_TRUE(batch->targets[4].item<bool>());
  Loader pairs(Pairs{}, options);
  EXPECT_EQ(pairs.next()->targets.scalar_type(), at::kFloat);
  Loader examples(TorchStyle{}, options);
  EXPECT_EQ(examples.next()->targets[5].item<std::int64_t>(), 5);
}

// LibTorch conjugates and negates lazily: by a bit of the tensor, beside the same bytes.
struct Spectra {
  static at::Tensor of(std::int64_t index) {
    return at::conj(at::complex(at::full({1}, static_cast<double>(index)), at::ones({1})));
  }
  std::int64_t size() const { return 4; }
  std::pair<at::Tensor, at::Tensor> get(std::int64_t index) const { return {of(index), at::imag(of(index))}; }
};

TEST(Loader, DeliversLazyConjugatesAndNegatives) {
  ASSERT_TRUE(Spectra::of(0).is_conj());
  ASSERT_TRUE(at::imag(Spectra::of(0)).is_neg());
  Loader loader(Spectra(), {.batch_size = 2, .epochs = 1, .shuffle = false});
  const Batch batch = loader.next().value();
  const at::Tensor expected = at::stack({Spectra::of(0), Spectra::of(1)});
  EXPECT_TRUE(at::equal(batch.inputs, expected));
  EXPECT_TRUE(at::equal(batch.targets, at::imag(expected)));
}

TEST(Loader, AUsersOwnFingerprintIsRecorded) {
  struct Named : Numbers {
    using Numbers::Numbers;
    std::string fingerprint() const { return "version 7"; }
  };
  EXPECT_EQ(Loader(Named(10), {.batch_size = 2}).fingerprint(), "version 7");
}

TEST(Loader, RunsWithoutGradients) {
  struct Grad {
    std::int64_t size() const { return 4; }
    at::Tensor get(std::int64_t) const { return weight * 2; }
    at::Tensor weight = at::full({2}, 1.0).set_requires_grad(true);
  };
  for (const int workers : {0, 1}) {
    Loader loader(Grad{}, {.batch_size = 2, .workers = workers});
    EXPECT_FALSE(loader.next()->inputs.requires_grad());
  }
}

}  // namespace
