# What tests/run does behind its tests, sourced by it. Most tests wait for clocks, disks and each other; what only computes
# fills the time between, at the lowest priority: the half with LibTorch and the programs, the builds of the lanes that have
# one of their own, and the checks that read sources.
has_clang() { local missing; missing=$(tests/fuzz/missing); [[ -z $missing ]] || left_out "$1" "$missing"; }
source_check() {  # <name> <seconds> [words by night]: at night the main build has no batches, and can be read itself
  if ((nightly)); then tally script "$1" 43200 "tests/$1" "$main" "${@:3}"; else tally script "$1" "$2" "tests/$1"; fi
}
by_night() { ((nightly)) || [[ $filter != . ]] || left_out "$1" "by night (--nightly), or where a filter names it"; }
has_torch() { ((torch)); }
of_default() { [[ -z $version || $filter != . ]] || left_out "$1" "the run with the default LibTorch has it"; }
# Beside the wheel, or of a toolkit: without its headers nothing of CUDA can be compiled.
can_cuda() {
  local place
  for place in .deps/libtorch-*/nvidia/{cu13,cuda_runtime} /usr/local/cuda; do
    [[ ! -e $place/include/cuda_runtime_api.h || ! -e $place/include/crt/host_defines.h ]] || return 0
  done
  left_out cuda "there are no headers of the CUDA runtime (cmake/bootstrap --cuda, or a CUDA toolkit)"
}
work_behind() {
  local lane kernels=0 preset clang more gpu=build/gpu${version:+-$version}
  trap '[[ -z $child ]] || kill "$child" 2>/dev/null; exit 130' TERM
  child=
  renice -n 19 "$BASHPID" >/dev/null
  build_of "${upper[@]}" ${all[@]+"${all[@]}"}
  if due kernels has_torch of_default && tally build kernels/build 1200 ninja -C "$main" kernel_resources; then kernels=1; fi
  touch "$TALLY_LOGS/upper.ready"
  for lane in asan tsan fuzz; do
    preset=asan clang=has_clang more=()  # asan and fuzz share a build
    [[ $lane != tsan ]] || preset=tsan clang=
    [[ -z $clang ]] || ((nightly)) || more=(-DHOLDFAST_QUICK_BUILD=ON)
    if due $lane/ of_core in_time $clang &&
      tally step $lane/configure 120 cmake/configure $preset build/$preset "$patience" ${more[@]+"${more[@]}"}; then
      build_of $lane build/$preset "^$lane\$" $([[ $lane != fuzz ]] || echo fuzz)
      touch "$TALLY_LOGS/$lane.ready"
    fi
    touch "$TALLY_LOGS/$lane.over"
  done
  # No GPU is needed for either. The build with CUDA takes most of its files from ccache: few of them know CUDA.
  if due cuda/ has_torch of_default in_time can_cuda &&
    tally step cuda/configure 120 cmake/configure release "$gpu" -DHOLDFAST_CUDA=ON -DHOLDFAST_BATCHES=$batches "$patience"; then
    tally build cuda/build 3600 ninja -C "$gpu" -k 0 cuda_half
  fi
  ((!kernels)) || tally script kernels 3600 tests/kernels/run "$main"
  ! due thread_safety by_night of_core_by_day || source_check thread_safety 1200
  ! due tidy by_night of_core_by_day in_time || source_check tidy 3600 $( ((!torch)) || echo --all)
}
ready() {  # <lane>: waits until the work behind is done with it. False: it was left out
  while [[ ! -e $TALLY_LOGS/$1.ready && ! -e $TALLY_LOGS/$1.over ]] && kill -0 "$behind" 2>/dev/null; do sleep 0.5; done
  [[ -e $TALLY_LOGS/$1.ready ]]
}
