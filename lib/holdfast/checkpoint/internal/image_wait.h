// Waits for an image of the state to become free. A save that waits for its turn in the writer gives way to a
// newer one, and only if that one comes.
//
// Errors: none. Threads: the training thread.
#pragma once

#include "holdfast/checkpoint/internal/notice_listener.h"
#include "holdfast/checkpoint/internal/run.h"
#include "holdfast/checkpoint/internal/write_limit.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

// What the image is for: a save, the last save (unless it comes too late), or to be kept for a save that may
// follow.
enum class ImageFor { save, last_save, keeping };

class ImageWait {
 public:
  ImageWait(Run& run, NoticeListener& listener, WriteLimit& limit)
      : run_(run), listener_(listener), limit_(limit) {}

  // False: `limit` or the deadline passed first, or the last save comes too late.
  bool wait(Duration limit, ImageFor use);

 private:
  bool save_follows(ImageFor use) const;
  bool too_late(ImageFor use) const { return use == ImageFor::last_save && run_.last_save_too_late(); }

  Run& run_;
  NoticeListener& listener_;
  WriteLimit& limit_;
};

}}}  // namespace holdfast::v0_2::internal
