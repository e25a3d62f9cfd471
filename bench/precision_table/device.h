// Device functions for measurements. Errors: none. Threads: one thread.
#pragma once

#include <c10/core/Device.h>

#include <functional>

namespace holdfast::bench {

// Waits until the device has finished.
void wait_for(c10::Device device);
// The device's memory in bytes; 0 on a CPU.
double memory_of(c10::Device device);
// Free bytes of a GPU; on a CPU free_of_machine() of memory.h.
double free_bytes(c10::Device device);
// Largest number of bytes in tensors during `work`, beyond those before. On a CPU: of this thread, which also
// runs autograd.
double peak_bytes(c10::Device device, const std::function<void()>& work);
// Returns memory that torch has cached to the device.
void release_memory();

}  // namespace holdfast::bench
