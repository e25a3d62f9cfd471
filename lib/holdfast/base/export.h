// Marks what the shared libraries export, so that their users can link it. Everything else is hidden.
//
//   HOLDFAST_EXPORT Digest digest_of(std::span<const std::byte> bytes);
//   class HOLDFAST_EXPORT Checkpointer { … };          // with all its members, its table and its type
//
// CMake's targets and pkg-config set HOLDFAST_SHARED. Without it Holdfast is static: it becomes a part of the
// program or library that links it, and such a library must not export it. tests/layering/exports finds what
// lacks the mark.
#pragma once

#if defined(HOLDFAST_SHARED)
#define HOLDFAST_EXPORT __attribute__((visibility("default")))
#else
#define HOLDFAST_EXPORT
#endif
