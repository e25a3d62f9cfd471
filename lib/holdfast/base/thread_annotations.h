// Which lock protects what, in words that clang checks (-Wthread-safety, tests/thread_safety). Other
// compilers see nothing.
//
//   Mutex mutex_;
//   int count_ HOLDFAST_GUARDED_BY(mutex_);            // read and written only while mutex_ is held
//   void add_locked() HOLDFAST_REQUIRES(mutex_);       // the caller holds it
//   void add() HOLDFAST_EXCLUDES(mutex_);              // the caller does not hold it: the function takes it
//   wake_.wait(mutex_, [this]() HOLDFAST_REQUIRES(mutex_) { return count_ > 0; });
//
// The mutex is declared before the members that it guards.
// https://clang.llvm.org/docs/ThreadSafetyAnalysis.html
#pragma once

#if defined(__clang__)
#define HOLDFAST_THREAD_ANNOTATION(attribute) __attribute__((attribute))
#else
#define HOLDFAST_THREAD_ANNOTATION(attribute)
#endif

// A class whose objects are locked and unlocked, as a mutex; and a class whose objects hold one while they
// live.
#define HOLDFAST_CAPABILITY(kind) HOLDFAST_THREAD_ANNOTATION(capability(kind))
#define HOLDFAST_SCOPED_CAPABILITY HOLDFAST_THREAD_ANNOTATION(scoped_lockable)

// For a member; PT_GUARDED_BY: what it points to.
#define HOLDFAST_GUARDED_BY(...) HOLDFAST_THREAD_ANNOTATION(guarded_by(__VA_ARGS__))
#define HOLDFAST_PT_GUARDED_BY(...) HOLDFAST_THREAD_ANNOTATION(pt_guarded_by(__VA_ARGS__))

// For a function or a lambda.
#define HOLDFAST_REQUIRES(...) HOLDFAST_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define HOLDFAST_EXCLUDES(...) HOLDFAST_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))
#define HOLDFAST_ACQUIRE(...) HOLDFAST_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define HOLDFAST_RELEASE(...) HOLDFAST_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
#define HOLDFAST_ACQUIRE_SHARED(...) HOLDFAST_THREAD_ANNOTATION(acquire_shared_capability(__VA_ARGS__))
#define HOLDFAST_RELEASE_SHARED(...) HOLDFAST_THREAD_ANNOTATION(release_shared_capability(__VA_ARGS__))
// The function is not checked. A comment beside it says why.
#define HOLDFAST_NO_THREAD_SAFETY_ANALYSIS HOLDFAST_THREAD_ANNOTATION(no_thread_safety_analysis)
