#!/bin/bash
# run-docker.sh WORD…: `holdfast WORD…`, supervise or sweep, as process 1 of the image $HF_IMAGE, with all GPUs.
#
# --init is not needed: `holdfast` collects the orphans of its container and passes signals on.
# --network host: the metadata service, which announces the interruption, is two hops away over a bridge.
# --stop-timeout: so long Docker waits after SIGTERM; the last commit and its way home must fit. The run may use all of it
# but 5 s. The unit's TimeoutStopSec is longer.
# Nothing here tells the group that the run is complete: hf-ended does, on the machine.
set -euo pipefail
(($# > 2)) || { echo "usage: run-docker.sh supervise --directory DIR -- COMMAND…, or sweep FILE …" >&2; exit 64; }
: "${HF_IMAGE:?name the image by digest: image@sha256:…}"
[[ $HF_IMAGE == *@sha256:* ]] || { echo "run-docker.sh: $HF_IMAGE: name it by digest, image@sha256:…" >&2; exit 64; }
gpus=(--gpus all)
[[ ${HF_GPU:-1} == 1 ]] || gpus=()
more=()
[[ ${HF_NVME:-} != 1 ]] || more+=(-v /mnt/fast:/mnt/fast)
if [[ $1 == sweep ]]; then
  more+=(--no-healthcheck -v "$2:$2:ro")  # the image's check looks at one run
else
  more+=(-e "HOLDFAST_RUN_DIR=$3")
fi
# rclone reads its remote from these.
for variable in "${!RCLONE_CONFIG@}"; do more+=(-e "$variable"); done
grace=100
docker rm -f holdfast-run >/dev/null 2>&1 || true
exec docker run --rm --name holdfast-run "${gpus[@]}" --network host --stop-timeout $grace --shm-size 8g \
  -v "${HF_MOUNT:-/mnt/holdfast}:/mnt/holdfast" \
  -v /run/holdfast:/run/holdfast:ro -e HOLDFAST_NOTICE_FILE=/run/holdfast/notice \
  -e HOLDFAST_TERM_GRACE=$((grace - 5))s \
  "${more[@]}" "$HF_IMAGE" "$@"
