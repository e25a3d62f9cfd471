// LibTorch carries Gloo inside libtorch_cpu but ships none of its headers, which its own ProcessGroupGloo.hpp
// includes. The files of this folder declare what that one names, and no more; nothing of them is ever
// defined, called or made here.
#pragma once

namespace gloo {
class Algorithm;
}
