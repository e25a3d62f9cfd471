// The language of kernels: one source that NVRTC compiles for a GPU at run time and g++ for a CPU's threads.
//
// A kernel is a struct of its arguments. All threads of a block do step 0, wait for each other, do step 1,
// and so on; `Shared` is what they tell each other, undefined at the start of a block.
//
// Threads: what runs on a CPU may be called from several, one block each.
#pragma once

#ifdef __CUDACC_RTC__
#define HOLDFAST_UNROLL _Pragma("unroll")
#else
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <math.h>
#include <string.h>

#include <atomic>
#define HOLDFAST_UNROLL
#endif

namespace holdfast { inline namespace v0_2 { namespace kernels {

//   struct Doubled {
//     static constexpr int kThreads = 256, kBlocksPerMultiprocessor = 4, kSteps = 1;
//     struct Shared {};
//     const float* in;
//     float* out;
//     Index count;
//     template <int kStep>
//     void step(const Place& at, Shared&) const {
//       const Index i = Index{at.block_x} * kThreads + at.thread;
//       if (i < count) out[i] = 2 * in[i];
//     }
//   };
//
// NVRTC has no standard library: a kernel's file includes this header and others of its kind only, and its
// functions need no mark (NVRTC compiles all for the device). Sums and products are fused only where fmaf
// says so, and division and square root are exact, on both: equal launches give equal bits on a CPU and on a
// GPU. (Not the functions of CUDA's mathematical library, such as expf.)

using Index = long long;  // the same on both sides; what counts elements may pass 2^31

struct Place {
  int thread;
  int block_x, block_y;
};

// Bits of 16-bit floats, as tensors hold them.
struct Half {
  unsigned short bits;
};
struct BFloat16 {
  unsigned short bits;
};

inline float to_float(float value) { return value; }
inline float to_float(BFloat16 value) {
  const unsigned bits = unsigned{value.bits} << 16;
  float result;
  memcpy(&result, &bits, sizeof result);
  return result;
}
inline float to_float(Half value) {
#ifdef __CUDACC_RTC__
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
  return result;
#else
  return static_cast<float>(c10::Half(value.bits, c10::Half::from_bits()));
#endif
}

// To the nearest, ties to even.
template <class T>
T from_float(float value);
template <>
inline float from_float<float>(float value) {
  return value;
}
template <>
inline Half from_float<Half>(float value) {
#ifdef __CUDACC_RTC__
  Half result;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
  return result;
#else
  return {c10::Half(value).x};
#endif
}
template <>
inline BFloat16 from_float<BFloat16>(float value) {
#ifndef __CUDACC_RTC__
  return {c10::BFloat16(value).x};
#elif __CUDA_ARCH__ >= 800
  BFloat16 result;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
  return result;
#else
  const unsigned bits = __float_as_uint(value);
  if (value != value) return {0x7fc0};
  return {static_cast<unsigned short>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
#endif
}

// 16 bytes, the most that one instruction moves.
template <class T>
inline constexpr int kPerPack = 16 / sizeof(T);
template <class T>
struct alignas(16) Pack {
  T value[kPerPack<T>];
};
template <class T>
Pack<T> load(const T* from) {
#ifdef __CUDACC_RTC__
  const uint4 words = *reinterpret_cast<const uint4*>(from);
  Pack<T> pack;
  memcpy(&pack, &words, sizeof pack);
  return pack;
#else
  return *reinterpret_cast<const Pack<T>*>(from);
#endif
}
// For what this launch reads once: it does not push what is needed again out of the cache.
template <class T>
Pack<T> load_once(const T* from) {
#ifdef __CUDACC_RTC__
  const uint4 words = __ldcs(reinterpret_cast<const uint4*>(from));
  Pack<T> pack;
  memcpy(&pack, &words, sizeof pack);
  return pack;
#else
  return load(from);
#endif
}
template <class T>
void store(T* to, const Pack<T>& pack) {
#ifdef __CUDACC_RTC__
  uint4 words;
  memcpy(&words, &pack, sizeof words);
  *reinterpret_cast<uint4*>(to) = words;
#else
  *reinterpret_cast<Pack<T>*>(to) = pack;
#endif
}
// A float that another block of this launch has written, after arrives_last() has said so.
inline float load_written(const float* from) {
#ifdef __CUDACC_RTC__
  return __ldcg(from);
#else
  return *from;
#endif
}

// Other blocks see all earlier writes of this thread before its later ones.
inline void publish() {
#ifdef __CUDACC_RTC__
  __threadfence();
#endif
}

// Called by one thread of each of `blocks` blocks. True for the last caller, which sees what the others
// published. The counter is 0 before the first call and after the last.
inline bool arrives_last(unsigned* counter, int blocks) {
  const unsigned count = static_cast<unsigned>(blocks);
#ifdef __CUDACC_RTC__
  __threadfence();
  const bool last = atomicInc(counter, count - 1) == count - 1;
  __threadfence();
  return last;
#else
  std::atomic_ref<unsigned> shared(*counter);
  const bool last = shared.fetch_add(1) + 1 == count;
  if (last) shared.store(0);
  return last;
#endif
}

#ifdef __CUDACC_RTC__
template <int kStep, class Kernel>
void run_from(const Kernel& kernel, const Place& at, typename Kernel::Shared& shared) {
  kernel.template step<kStep>(at, shared);
  if constexpr (kStep + 1 < Kernel::kSteps) {
    __syncthreads();
    run_from<kStep + 1>(kernel, at, shared);
  }
}

template <class Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, Kernel::kBlocksPerMultiprocessor)
    run(const Kernel kernel) {
  __shared__ typename Kernel::Shared shared;
  const Place at{static_cast<int>(threadIdx.x), static_cast<int>(blockIdx.x), static_cast<int>(blockIdx.y)};
  run_from<0>(kernel, at, shared);
}
#else
template <int kStep, class Kernel>
void run_block_from(const Kernel& kernel, Place at, typename Kernel::Shared& shared) {
  for (at.thread = 0; at.thread < Kernel::kThreads; ++at.thread) kernel.template step<kStep>(at, shared);
  if constexpr (kStep + 1 < Kernel::kSteps) run_block_from<kStep + 1>(kernel, at, shared);
}
#endif

}}}  // namespace holdfast::v0_2::kernels
