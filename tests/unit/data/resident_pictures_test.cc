#include "holdfast/data/resident_pictures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <thread>

#include "holdfast/base/error.h"
#include "holdfast/data/loader.h"
#include "holdfast/data/random.h"
#include "holdfast/data/synthetic.h"
#include "unit/data/memory_state.h"

namespace {

using holdfast::AugmentOptions;
using holdfast::BatchRequest;
using holdfast::Loader;
using holdfast::LoaderOptions;
using holdfast::PictureDataset;
using holdfast::PictureSet;
using holdfast::PictureShape;
using holdfast::ResidentOptions;
using holdfast::ResidentPictures;
using holdfast::UsageError;
using holdfast_test::MemoryState;

PictureSet noise(std::int64_t count, const PictureShape& shape) {
  PictureSet set("noise", count, shape, 200);
  for (std::int64_t i = 0; i < count; ++i) {
    for (std::int64_t byte = 0; byte < set.record_bytes(); ++byte) {
      const auto counter = static_cast<std::uint32_t>(i * set.record_bytes() + byte);
      set.record(i)[byte] = static_cast<std::uint8_t>(holdfast::philox(7, {counter, 0, 0, 0})[0] % 256);
    }
    set.record(i)[0] = static_cast<std::uint8_t>(199 - i % 200);  // above 127 as well
  }
  return set;
}

template <class Data>
std::vector<at::Tensor> batch_of(const Data& data, const BatchRequest& request) {
  holdfast::TensorPool pool;
  auto fields = data.get_batch(request, pool);
  if constexpr (holdfast::FinishingDataset<const Data>) fields = data.finish_batch(std::move(fields));
  return fields;
}

// Not at::equal: -0 and 0 would be equal to it.
void expect_same_bits(const at::Tensor& actual, const at::Tensor& expected) {
  ASSERT_EQ(actual.sizes(), expected.sizes());
  ASSERT_EQ(actual.scalar_type(), expected.scalar_type());
  const at::Tensor a = actual.contiguous(), b = expected.contiguous();
  ASSERT_EQ(std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()), 0);
}

struct Case {
  PictureShape shape;
  AugmentOptions augmentation;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const PictureShape shape :
       {PictureShape{}, PictureShape{1, 28, 28}, PictureShape{4, 7, 5}, PictureShape{2, 3, 64}}) {
    AugmentOptions options;
    options.mean[3] = 0.1F;
    options.stddev[3] = 0.3F;
    for (const int padding : {4, 0, 1, 3}) {
      for (const bool flip : {true, false}) {
        if (padding > shape.height) continue;
        options.padding = padding;
        options.flip = flip;
        all.push_back({shape, options});
      }
    }
  }
  return all;
}

TEST(ResidentPictures, MakeTheBatchesOfAPictureDatasetBitForBit) {
  std::vector<std::int64_t> samples(41);
  std::iota(samples.begin(), samples.end(), 0);
  std::swap(samples[3], samples[40]);
  samples[7] = samples[8];
  for (const auto& [shape, augmentation] : cases()) {
    const PictureDataset host(noise(41, shape), augmentation);
    for (const auto layout : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
      const ResidentPictures device(noise(41, shape), augmentation, {.device = at::kCPU, .layout = layout});
      for (const std::uint64_t seed : {std::uint64_t{1}, std::uint64_t{0xFEDCBA9876543210}}) {
        for (const std::int64_t epoch : {0, 3, 70'000}) {
          SCOPED_TRACE(std::to_string(shape.channels) + "x" + std::to_string(shape.height) + "x" +
                       std::to_string(shape.width) + " padding " + std::to_string(augmentation.padding) +
                       (augmentation.flip ? " flip" : "") + " epoch " + std::to_string(epoch));
          const BatchRequest request{.seed = seed, .epoch = epoch, .samples = samples};
          const auto expected = batch_of(host, request);
          const auto actual = batch_of(device, request);
          ASSERT_EQ(actual.size(), 2U);
          EXPECT_TRUE(actual[0].is_contiguous(layout));
          expect_same_bits(actual[0], expected[0]);
          expect_same_bits(actual[1], expected[1]);
        }
      }
    }
  }
}

TEST(ResidentPictures, EvaluationIsTheNormalisedPicture) {
  const AugmentOptions evaluation = AugmentOptions{}.for_evaluation();
  const PictureDataset host(holdfast::synthetic_pictures(30).test, evaluation);
  const ResidentPictures device(holdfast::synthetic_pictures(30).test, evaluation, {});
  const std::vector<std::int64_t> samples{9, 0, 4};
  const BatchRequest request{.seed = 1, .epoch = 5, .samples = samples};
  expect_same_bits(batch_of(device, request)[0], batch_of(host, request)[0]);
}

TEST(ResidentPictures, RefuseWhatAPictureDatasetRefuses) {
  const auto with = [](const AugmentOptions& options) {
    return ResidentPictures(noise(2, PictureShape{}), options, {});
  };
  EXPECT_THROW(with({.padding = -1}), UsageError);
  EXPECT_THROW(with({.padding = 33}), UsageError);
  EXPECT_THROW(with({.stddev = {0.2F, 0.0F, 0.2F}}), UsageError);
}

// A run goes on with its pictures at the other place, in the middle of an epoch and of the loader's prefetch:
// what is recorded is the same, and so is every batch that follows.
TEST(ResidentPictures, ARunMayMoveThemBetweenHostAndDeviceAtAnyUpdate) {
  const LoaderOptions options{.batch_size = 4, .epochs = 2, .seed = 5, .accumulation = 2, .workers = 2};
  const auto host = [&] { return Loader(PictureDataset(noise(27, PictureShape{}), {}), options); };
  const auto device = [&] { return Loader(ResidentPictures(noise(27, PictureShape{}), {}, {}), options); };
  Loader reference = host();
  std::vector<holdfast::Batch> expected;
  while (auto batch = reference.next()) expected.push_back(std::move(*batch));
  ASSERT_EQ(expected.size(), 12U);

  for (const bool to_device : {false, true}) {
    for (std::size_t stop = 0; stop < expected.size(); stop += 2) {
      SCOPED_TRACE((to_device ? "host to device after " : "device to host after ") + std::to_string(stop));
      MemoryState recorded, otherwise;
      {
        Loader before = to_device ? host() : device();
        for (std::size_t i = 0; i < stop; ++i) before.applied(before.next()->cursor);
        before.next();  // delivered, never applied
        before.save(recorded);
      }
      Loader after = to_device ? device() : host();
      after.load(recorded);
      after.save(otherwise);
      EXPECT_TRUE(otherwise.values == recorded.values);
      EXPECT_EQ(otherwise.options, recorded.options);
      for (std::size_t i = stop; i < expected.size(); ++i) {
        const auto batch = after.next();
        ASSERT_TRUE(batch);
        expect_same_bits(batch->inputs, expected[i].inputs);
        expect_same_bits(batch->targets, expected[i].targets);
        EXPECT_EQ(batch->cursor, expected[i].cursor);
        EXPECT_EQ(batch->completes_update, expected[i].completes_update);
      }
      EXPECT_FALSE(after.next());
    }
  }
}

// A user's data set that finishes its batches: twice the sample's number, and where it was done.
struct Finishing {
  std::int64_t size() const { return 12; }
  std::vector<at::Tensor> get_batch(const BatchRequest& request, holdfast::TensorPool& pool) const {
    at::Tensor numbers = pool.take({static_cast<std::int64_t>(request.samples.size())}, at::kLong);
    std::copy(request.samples.begin(), request.samples.end(), numbers.mutable_data_ptr<std::int64_t>());
    return {numbers};
  }
  std::vector<at::Tensor> finish_batch(const std::vector<at::Tensor>& made) {
    EXPECT_EQ(std::this_thread::get_id(), thread);
    EXPECT_FALSE(at::GradMode::is_enabled());
    if (made.front()[0].item<std::int64_t>() == fails_at) throw std::runtime_error("the device is gone");
    return {made.front() * 2, made.front()};
  }
  std::thread::id thread = std::this_thread::get_id();
  std::int64_t fails_at = -1;
};

TEST(FinishBatch, RunsOnTheTrainingThreadInTheOrderOfDelivery) {
  Loader loader(Finishing{}, {.batch_size = 3, .epochs = 1, .shuffle = false, .workers = 3});
  std::int64_t first = 0;
  while (const auto batch = loader.next()) {
    EXPECT_EQ(batch->inputs[0].item<std::int64_t>(), 2 * first);
    EXPECT_EQ(batch->targets[2].item<std::int64_t>(), first + 2);
    first += 3;
  }
  EXPECT_EQ(first, 12);
}

// Otherwise a caller that goes on after an error would train on the batch behind the one that was lost.
TEST(FinishBatch, AFailureIsNamedAndStaysUntilTheLoaderIsMoved) {
  for (const int workers : {0, 2}) {
    Loader loader(Finishing{.fails_at = 3}, {.batch_size = 3, .shuffle = false, .workers = workers});
    loader.next();
    for (int i = 0; i < 3; ++i) {
      try {
        loader.next();
        FAIL() << "call " << i << " returned a batch";
      } catch (const holdfast::Error& error) {
        EXPECT_THAT(error.what(), testing::HasSubstr("positions 3 to 5"));
        EXPECT_THAT(error.what(), testing::HasSubstr("the device is gone"));
      }
    }
    loader.applied_all_delivered();
    EXPECT_EQ(loader.cursor(), (holdfast::Cursor{0, 3}));
    loader.restart();
    EXPECT_EQ(loader.next()->targets[0].item<std::int64_t>(), 0);
  }
}

}  // namespace
