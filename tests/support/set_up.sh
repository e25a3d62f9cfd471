# tests/run's set-up, sourced by it: installs what is missing, chooses LibTorch, finds CIFAR-10.
if ((setup)); then
  echo " 0:00  set-up"  # tests/tally needs Python, which comes with it
  [[ -z $version || ! -e .deps/env ]] || cp .deps/env "$TALLY_LOGS/env"
  cmake/bootstrap "${bootstrap[@]}" || { echo " 0:00  FAILED setup"; echo "0 passed, 1 failed"; exit 1; }
  # Tests that read with foreign tools skip themselves without these.
  cmake/bootstrap --interop || echo "tests that need tests/interop will be left out"
  ((!torch)) || [[ -n $version || ! kernels =~ $filter ]] || cmake/bootstrap --nvrtc || echo "the lane kernels will look at what it finds an NVRTC for"
fi
if [[ -n $version ]]; then
  number=$version
  [[ $version != latest || ! -e .deps/latest ]] || number=$(<.deps/latest)
  export HOLDFAST_LIBTORCH=$PWD/.deps/libtorch-$number
  [[ -e $HOLDFAST_LIBTORCH/complete ]] || refuse "LibTorch $version is not in .deps: leave out --no-setup"
  tally say "with LibTorch $number"
  [[ ! -e $TALLY_LOGS/env ]] || mv "$TALLY_LOGS/env" .deps/env  # builds by hand keep the one that they had
fi
[[ ! -e .deps/env ]] || . .deps/env

converter=$PWD/../shared/data/cifar10-to-bin
if [[ -z ${HOLDFAST_CIFAR10_DIR:-} && -x $converter ]]; then
  [[ -e build/cifar10/complete ]] ||
    { timeout 300 "$converter" build/cifar10 >"$TALLY_LOGS/cifar10.log" 2>&1 && touch build/cifar10/complete; }
  [[ ! -e build/cifar10/complete ]] || export HOLDFAST_CIFAR10_DIR=$PWD/build/cifar10/cifar-10-batches-bin
fi
