// Pictures that live on a GPU give the host's batches bit for bit. Without a GPU every test is skipped and
// says so.
#include "holdfast/data/resident_pictures.h"

#include <c10/cuda/CUDAFunctions.h>
#include <gtest/gtest.h>

#include <cstring>

#include "holdfast/data/loader.h"
#include "holdfast/data/synthetic.h"

namespace holdfast::test { namespace {

class Cuda : public testing::Test {
 protected:
  void SetUp() override {
    if (c10::cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device here";
  }
};

void expect_same_bits(const at::Tensor& actual, const at::Tensor& expected) {
  const at::Tensor a = actual.cpu().contiguous();
  ASSERT_EQ(a.sizes(), expected.sizes());
  ASSERT_EQ(std::memcmp(a.const_data_ptr(), expected.const_data_ptr(), a.nbytes()), 0);
}

TEST_F(Cuda, ResidentPicturesMakeTheHostsBatches) {
  for (const auto layout : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
    for (const AugmentOptions& augmentation : {AugmentOptions{}, AugmentOptions{}.for_evaluation()}) {
      LoaderOptions options{.batch_size = 512, .epochs = 2, .seed = 3, .drop_last = false, .workers = 2};
      Loader host(PictureDataset(synthetic_pictures(5'000).train, augmentation), options);
      options.pin_memory = true;
      Loader device(ResidentPictures(synthetic_pictures(5'000).train, augmentation,
                                     {.device = at::kCUDA, .layout = layout}),
                    options);
      int batches = 0;
      while (const auto expected = host.next()) {
        const auto actual = device.next();
        ASSERT_TRUE(actual);
        EXPECT_TRUE(actual->inputs.is_cuda() && actual->targets.is_cuda());
        EXPECT_TRUE(actual->inputs.is_contiguous(layout));
        expect_same_bits(actual->inputs, expected->inputs);
        expect_same_bits(actual->targets, expected->targets);
        ++batches;
      }
      EXPECT_EQ(batches, 20);
    }
  }
}

}}  // namespace holdfast::test
