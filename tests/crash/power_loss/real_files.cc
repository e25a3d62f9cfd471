#include <cstring>

#include "file_maker.h"
#include "holdfast/format/file_plan.h"
#include "holdfast/format/image_writer.h"
#include "holdfast/staging/run_record.h"
#include "holdfast/writing/file_verifier.h"
#include "random.h"

namespace holdfast::test::power_loss {
namespace {

constexpr std::uint64_t kSmallCapacity = 2048;  // of attributes: keeps the files small

class RealFiles final : public FileMaker {
 public:
  RealFiles()
      : plan_(make_file_plan({{"model/weight", DType::float32, {24, 16}},
                              {"optimizer/momentum/weight", DType::bfloat16, {24, 16}},
                              {"rng/cpu", DType::uint8, {33}}},
                             kSmallCapacity)) {
    snapshot_.layout = plan_->layout;
    snapshot_.arena = make_image(*plan_);
    verifier_.stop_keeping();
  }

  CommitRequest request(const Content& content) override {
    return {.step = content.step,
            .bytes = plan_->layout->length(),
            .ancestry = content.ancestry,
            .write = [this, content](File& file) {
              stage(content);
              write_image(file, snapshot_, *plan_, 1);
            }};
  }
  Verifier& verifier() override { return verifier_; }

 private:
  void stage(const Content& content) {
    Random words(content.attempt * 1'000'003 + static_cast<std::uint64_t>(content.step));
    for (std::size_t i = 0; i < plan_->layout->tensors().size(); ++i) {
      for (std::byte& byte : plan_->layout->slot(i, snapshot_.arena->bytes()))
        byte = std::byte(words.next() & 0xff);
    }
    snapshot_.step = content.step;
    snapshot_.attributes = {};
    put_run_record(snapshot_.attributes, {.attempt = content.attempt,
                                          .ancestry = content.ancestry,
                                          .loss = 0.5,
                                          .finite = content.finite,
                                          .overrides = {},
                                          .grown_from = {},
                                          .time = {},
                                          .host = {},
                                          .metrics = {}});
  }

  std::shared_ptr<const FilePlan> plan_;
  Snapshot snapshot_;
  FileVerifier verifier_{1};
};

}  // namespace

std::unique_ptr<FileMaker> real_files() { return std::make_unique<RealFiles>(); }

}  // namespace holdfast::test::power_loss
