// Goes through every order in which the attempts' steps, their deaths and power cuts can follow each other,
// breadth first, so that what it finds is the shortest way there.
//
// Threads: one search by one thread. Memory: 50 bytes a state.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rule.h"
#include "step.h"

namespace holdfast::test::fencing {

// What dies at once, and what may be lost with it.
enum class Power {
  never_fails,      // attempts die one by one, and what they did stays
  one_machine,      // all that run die at once, and any of the open operations are taken back
  machines_of_own,  // on a shared volume: one dies, and takes back those of its own that no other has seen
};

struct Request {
  Rule rule = {};
  bool with_a_past = true;
  int attempts = kAttempts;
  Lives lives = {};
  Power power = Power::one_machine;
  Violation only = Violation::none;  // passes over every violation but that one; none: over none
  std::uint64_t most = UINT64_MAX;   // states
};

struct Result {
  std::uint64_t states = 0;  // distinct
  std::uint64_t transitions = 0;
  bool exhausted = false;       // there are no others
  std::uint64_t completed = 0;  // states in which an attempt has done all its saves
  Violation violation = Violation::none;
  std::vector<std::string> trace;  // one line a step, to the violation
};

Result search(const Request& request);

}  // namespace holdfast::test::fencing
