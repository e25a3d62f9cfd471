// Batch norm, addition and ReLU over NHWC, as kernels. Of each pass over memory there is one, forward and
// backward two each: what is between them are a few numbers a channel.
//
// Threads: as device_code.h says.
#pragma once

#include "holdfast/kernels/internal/apply_kernel.h"
#include "holdfast/kernels/internal/gradient_kernels.h"
#include "holdfast/kernels/internal/moments_kernel.h"
