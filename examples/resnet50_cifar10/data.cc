#include "data.h"

#include <utility>

#include "holdfast/data/cifar10.h"
#include "holdfast/data/resident_pictures.h"
#include "holdfast/data/synthetic.h"

namespace example {
namespace {

holdfast::Loader make_loader(const Options& options, at::Device device, holdfast::PictureSet pictures,
                             const holdfast::AugmentOptions& augment,
                             const holdfast::LoaderOptions& loading) {
  if (options.data_on == DataOn::host)
    return {holdfast::PictureDataset(std::move(pictures), augment), loading};
  const auto layout = options.channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
  return {holdfast::ResidentPictures(std::move(pictures), augment, {.device = device, .layout = layout}),
          loading};
}

}  // namespace

holdfast::PictureSplits read_pictures(const Options& options) {
  return options.synthetic_count ? holdfast::synthetic_pictures(*options.synthetic_count)
                                 : holdfast::read_cifar10(options.data);
}

Data make_loaders(const Options& options, at::Device device, holdfast::PictureSplits pictures) {
  const holdfast::AugmentOptions augment;
  const holdfast::Shard shard{options.place.rank, options.place.world_size};
  const holdfast::LoaderOptions training{.batch_size = options.share.batch_size,
                                         .seed = static_cast<std::uint64_t>(options.seed),
                                         .accumulation = options.share.accumulation,
                                         .workers = options.workers,
                                         .pin_memory = options.cuda,
                                         .shard = shard};
  const holdfast::LoaderOptions testing{.batch_size = 250,
                                        .epochs = 1,
                                        .shuffle = false,
                                        .drop_last = false,
                                        .workers = options.workers,
                                        .pin_memory = options.cuda,
                                        .shard = shard};
  return {make_loader(options, device, std::move(pictures.train), augment, training),
          make_loader(options, device, std::move(pictures.test), augment.for_evaluation(), testing)};
}

}  // namespace example
