// A fixture whose tests compute on one thread.
#pragma once

#include <ATen/Parallel.h>

namespace holdfast::test {

// Two threads wait for each other where a machine is busy.
template <class Base>
class OnOneThread : public Base {
 protected:
  OnOneThread() { at::set_num_threads(1); }
  ~OnOneThread() override { at::set_num_threads(threads_); }

 private:
  int threads_ = at::get_num_threads();
};

}  // namespace holdfast::test
