// Foreign tools that read what Holdfast wrote: the Python of .deps/interop, where cmake/bootstrap --interop installed
// tensorboard, pandas, h5py and safetensors (tests/interop/requirements.txt). A test that needs one skips itself
// with missing_interop() as its reason.
#pragma once

#include <string>

namespace holdfast::test {

// Path of a Python that can import the packages. Empty: it is not installed.
std::string interop_python();

// Why interop_python() is empty, for GTEST_SKIP().
std::string missing_interop();

}  // namespace holdfast::test
