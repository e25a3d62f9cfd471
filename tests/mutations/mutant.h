// Asked by each place that tests/mutations/run changes: is this the mutant that lives in this process?
//
// Errors: none. Threads: any; a mark that is lost is made again at the next pass.
#pragma once

constexpr int kMutants = 1 << 14;
extern const int mutant_chosen;
extern bool mutants_met[kMutants];

inline bool mutant(int n) {
  mutants_met[n] = true;
  return n == mutant_chosen;
}

template <class A, class B>
bool mutant_less(int n, const A& a, const B& b) {
  return mutant(n) ? a <= b : a < b;
}
template <class A, class B>
bool mutant_most(int n, const A& a, const B& b) {
  return mutant(n) ? a < b : a <= b;
}
template <class A, class B>
bool mutant_more(int n, const A& a, const B& b) {
  return mutant(n) ? a >= b : a > b;
}
template <class A, class B>
bool mutant_least(int n, const A& a, const B& b) {
  return mutant(n) ? a > b : a >= b;
}
