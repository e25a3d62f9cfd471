#!/bin/bash
# run-docker.sh RUN_DIR [OPTION…] -- COMMAND…: `holdfast supervise` as process 1 of the image $HF_IMAGE, with all GPUs.
# OPTIONs are those of supervise, such as --mirror.
#
# --init is not needed: `holdfast supervise` collects the orphans of its container and passes signals on.
# --network host: the metadata service, which announces the interruption, is two hops away over a bridge.
# --stop-timeout: so long Docker waits after SIGTERM; the last commit and its way home must fit. The run may use all of it
# but 5 s. The unit's TimeoutStopSec is longer.
# Nothing here tells the group that the run is complete: hf-ended does, on the machine.
set -euo pipefail
run_dir=${1:?run-docker.sh RUN_DIR [OPTION…] -- COMMAND…}
shift
supervise=()
while (($#)) && [[ $1 != -- ]]; do supervise+=("$1"); shift; done
(($# > 1)) || { echo "run-docker.sh: which command trains?" >&2; exit 64; }
: "${HF_IMAGE:?name the image by digest: image@sha256:…}"
[[ $HF_IMAGE == *@sha256:* ]] || { echo "run-docker.sh: $HF_IMAGE: name it by digest, image@sha256:…" >&2; exit 64; }
gpus=(--gpus all)
[[ ${HF_GPU:-1} == 1 ]] || gpus=()
[[ -z ${CUDA_VISIBLE_DEVICES:-} ]] || gpus=(--gpus "\"device=$CUDA_VISIBLE_DEVICES\"")
more=()
[[ ${HF_NVME:-} != 1 ]] || more+=(-v /mnt/fast:/mnt/fast)
# rclone reads its remote from these.
for variable in "${!RCLONE_CONFIG@}"; do more+=(-e "$variable"); done
name=holdfast-$(basename "$run_dir")
grace=100
docker rm -f "$name" >/dev/null 2>&1 || true
exec docker run --rm --name "$name" "${gpus[@]}" --network host --stop-timeout $grace --shm-size 8g \
  -v "${HF_MOUNT:-/mnt/holdfast}:/mnt/holdfast" -e "HOLDFAST_RUN_DIR=$run_dir" \
  -v /run/holdfast:/run/holdfast:ro -e HOLDFAST_NOTICE_FILE=/run/holdfast/notice \
  -e HOLDFAST_TERM_GRACE=$((grace - 5))s \
  "${more[@]}" "$HF_IMAGE" supervise --directory "$run_dir" "${supervise[@]}" "$@"
