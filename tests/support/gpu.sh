# tests/run --gpu, sourced by it: the GPU suites in a build with CUDA, then the example killed and resumed on the GPU at its
# full size, which is what bench/gpu_session does first.
tally step configure 180 cmake/configure release build/gpu -DHOLDFAST_CUDA=ON -DHOLDFAST_BATCHES=$batches "$patience" ||
  { tally total; exit 1; }
build_of gpu build/gpu '^gpu$' "$(tests/tally list gpu build/gpu '^gpu$') resnet50_cifar10 holdfast"
tally ctest gpu build/gpu '^gpu$'
! due gpu/session || tally step gpu/session 1200 bench/gpu_session --minutes 20 --again all \
  --only resume-imagenet,resume-cifar,two-ranks --done "$TALLY_LOGS/gpu_session"
