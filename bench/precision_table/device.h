// What a measurement asks of a device. Errors: none. Threads: one thread.
#pragma once

#include <c10/core/Device.h>

#include <functional>

namespace holdfast::bench {

// Waits until the device has done its work.
void wait_for(c10::Device device);
// The device's memory in bytes; 0 on a CPU.
double memory_of(c10::Device device);
// Bytes that may still be taken: what is free on a GPU; memory.h's free_of_machine() on a CPU.
double free_bytes(c10::Device device);
// The most bytes of tensors that `work` held at one time, beyond what was there before. On a CPU those of
// this thread, on which autograd runs there.
double peak_bytes(c10::Device device, const std::function<void()>& work);
// Gives memory that Torch keeps for later back to the device.
void release_memory();

}  // namespace holdfast::bench
