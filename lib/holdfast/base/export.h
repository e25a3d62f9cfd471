// What the shared libraries let their users link: nothing but what is marked so. Everything else is hidden.
//
//   HOLDFAST_EXPORT Digest digest_of(std::span<const std::byte> bytes);
//   class HOLDFAST_EXPORT Checkpointer { … };          // with all its members, its table and its type
//
// HOLDFAST_SHARED comes from CMake's targets and pkg-config. Without it Holdfast is static, and becomes a part of what
// links it: a library made so must not export it. tests/layering/exports says what needs the mark.
#pragma once

#if defined(HOLDFAST_SHARED)
#define HOLDFAST_EXPORT __attribute__((visibility("default")))
#else
#define HOLDFAST_EXPORT
#endif
