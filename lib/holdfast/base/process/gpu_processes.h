// Which processes compute on which GPUs of this machine, by NVIDIA's libnvidia-ml, as text.
//
// Errors: none; without that library or a GPU the text says so. Threads: one. A driver that hangs holds the
// caller: use a thread that may be left behind (lookup.h).
#pragma once

#include <string>

namespace holdfast { inline namespace v0_2 {

std::string gpu_processes(const char* library = "libnvidia-ml.so.1");

}}  // namespace holdfast::v0_2
