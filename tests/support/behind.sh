# What tests/run does behind its tests, sourced by it. Most tests wait for clocks, disks and each other; what only computes
# fills the time between, at the lowest priority: the half with LibTorch and the programs, the builds of the lanes that have
# one of their own, and the checks that read sources.
can_fuzz() { local missing; missing=$(tests/fuzz/missing); [[ -z $missing ]] || left_out fuzz "$missing"; }
source_check() {  # <name> <seconds> [words by night]: at night the main build has no batches, and can be read itself
  if ((nightly)); then tally script "$1" 43200 "tests/$1" "$main" "${@:3}"; else tally script "$1" "$2" "tests/$1"; fi
}
work_behind() {
  local lane
  trap '[[ -z $child ]] || kill "$child" 2>/dev/null; exit 130' TERM
  child=
  renice -n 19 "$BASHPID" >/dev/null
  build_of "${upper[@]}" ${all[@]+"${all[@]}"}
  touch "$TALLY_LOGS/upper.ready"
  for lane in asan tsan fuzz; do
    if due $lane/ of_core in_time $([[ $lane != fuzz ]] || echo can_fuzz) &&
      tally step $lane/configure 120 cmake/configure $lane build/$lane "$patience"; then
      build_of $lane build/$lane "^$lane\$" $([[ $lane != fuzz ]] || echo fuzz)
      touch "$TALLY_LOGS/$lane.ready"
    fi
    touch "$TALLY_LOGS/$lane.over"
  done
  ! due thread_safety of_core_by_day || source_check thread_safety 1200
  ! due tidy of_core_by_day in_time || source_check tidy 3600 $( ((!torch)) || echo --all)
}
ready() {  # <lane>: waits until the work behind is done with it. False: it was left out
  while [[ ! -e $TALLY_LOGS/$1.ready && ! -e $TALLY_LOGS/$1.over ]] && kill -0 "$behind" 2>/dev/null; do sleep 0.5; done
  [[ -e $TALLY_LOGS/$1.ready ]]
}
