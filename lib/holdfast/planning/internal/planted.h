// Bugs that the simulation must find, one at a time. The tests' build of this module switches one on; the
// lines of RunCore that it breaks ask planted(). Here planted() is always false, so the compiler removes
// these questions.
//
// Errors: none. Threads: one; set before a simulation begins.
#pragma once

namespace holdfast { inline namespace v0_2 { namespace run {

// clang-format off
#define HOLDFAST_PLANTED_BUGS(bug)                                                                          \
  bug(acknowledges_before_durable) bug(submits_a_spoiled_copy) bug(leaves_a_copy_open)                      \
  bug(stages_memory_in_an_evaluation) bug(asks_no_second_time_after_a_wait) bug(lets_a_guess_forbid)        \
  bug(forgets_a_withdrawal) bug(never_outlives_an_end) bug(ends_with_zero_after_a_failure)                  \
  bug(takes_a_broken_evaluation_for_a_boundary) bug(stops_without_a_vote) bug(recalls_without_settling)     \
  bug(writes_two_at_once) bug(leaks_the_image_of_a_failure) bug(is_quiet_too_long)                          \
  bug(saves_a_torn_state_at_the_end) bug(ignores_a_newer_attempt) bug(counts_a_failed_save)                 \
  bug(begins_an_agreed_save_in_any_case) bug(ignores_ends_of_others) bug(names_the_guess_of_another)        \
  bug(tries_the_last_save_once) bug(does_not_await_shares) bug(gives_up_at_a_guess)                         \
  bug(keeps_the_write_limit) bug(never_restores_the_write_limit) bug(forgets_the_best_value)                \
  bug(serves_a_request_twice) bug(hides_a_named_end_behind_a_passed_one) bug(takes_a_sleep_for_an_end)      \
  bug(repeats_a_failed_last_save_at_once) bug(counts_a_step_after_the_end)                                  \
  bug(gives_up_at_the_end_of_another) bug(ends_broken_evaluations_with_74)                                  \
  bug(tries_no_more_in_an_evaluation) bug(approves_before_durable) bug(forgets_the_way_home)                \
  bug(never_learns_an_interval) bug(leaves_the_machine_approved) bug(keeps_the_run_from_a_standby)
// clang-format on

enum class Planted {
  none,
#define HOLDFAST_PLANTED_NAME(name) name,
  HOLDFAST_PLANTED_BUGS(HOLDFAST_PLANTED_NAME)
#undef HOLDFAST_PLANTED_NAME
};

#ifdef HOLDFAST_PLANT_BUGS
inline Planted planted_bug = Planted::none;
inline bool planted(Planted bug) { return planted_bug == bug; }
#else
constexpr bool planted(Planted /*bug*/) { return false; }
#endif

}}}  // namespace holdfast::v0_2::run
