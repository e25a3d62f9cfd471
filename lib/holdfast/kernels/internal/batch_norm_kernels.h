// Kernels for batch norm, addition and ReLU over NHWC. Forward and backward take two passes over memory each.
// Between the passes there are only a few numbers for each channel.
//
// Threads: as device_code.h says.
#pragma once

#include "holdfast/kernels/internal/apply_kernel.h"
#include "holdfast/kernels/internal/gradient_kernels.h"
#include "holdfast/kernels/internal/moments_kernel.h"
