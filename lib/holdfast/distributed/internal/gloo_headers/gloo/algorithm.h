// LibTorch has Gloo inside libtorch_cpu but ships none of its headers, which its own ProcessGroupGloo.hpp
// includes. The files of this folder declare only what that header names. Holdfast defines and calls nothing
// of them.
#pragma once

namespace gloo {
class Algorithm;
}
