"""The kit's shell scripts, with doubles of the programs that they call."""

from __future__ import annotations

import base64
import hashlib
import json
import lzma
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast_aws.nodes import Node, wait_for_all, words
from holdfast_aws.standby import HANDING_OVER
from holdfast_aws.stop import StopError

KIT = Path(__file__).resolve().parents[2] / "examples" / "aws_spot"


class Bench:
    """A folder of doubles: each writes its words to a log, and does what it was told."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.bin = root / "bin"
        self.home = root / "home"
        self.log = root / "log"
        self.planted: tuple[str, str] | None = None  # a bug: this text of the script becomes that
        for folder in (self.bin, self.home, root / "etc", root / "mnt"):
            folder.mkdir()

    def double(self, name: str, does: str = "", folder: Path | None = None) -> None:
        place = (folder or self.bin) / name
        place.write_text(f'#!/bin/bash\necho "{name} $*" >>{self.log}\n{does}\n')
        place.chmod(0o755)

    def run(self, script: str, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        program = KIT / script
        if self.planted is not None:
            text = program.read_text()
            assert self.planted[0] in text
            program = self.root / "planted"
            program.write_text(text.replace(*self.planted))
            program.chmod(0o755)
        return subprocess.run(
            [str(program), *words],
            capture_output=True,
            text=True,
            check=False,
            env={
                "PATH": f"{self.bin}:/usr/bin:/bin",
                "HF_HOME": str(self.home),
                "HF_ETC": str(self.root / "etc"),
                "HF_MOUNT": str(self.root / "mnt"),
                "HF_BIN": str(self.root / "bin"),
                "HF_PYTHON": "/bin/true",
                **environment,
            },
        )

    def calls(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    made = Bench(tmp_path)
    for name in ("hf", "hf-node", "run-docker.sh", "fetch-kit", "holdfast-in-docker"):
        made.double(name, folder=made.home)
    (made.home / "hf-kit").symlink_to(KIT / "machine/hf-kit")
    made.double("apt-get", "exit 1")
    words = ["train", "--checkpoint-dir", "{run_dir}", "--metrics", "{run_dir}/training.csv"]
    (tmp_path / "etc/command").write_text("\n".join([*words, "--note", "two words"]) + "\n")
    return made


START = "systemctl start --no-block"
ASKED = "systemctl show -P Job holdfast.service"


@pytest.mark.parametrize(
    ("code", "status", "job", "calls"),
    [
        ("exited", "0", "", [f"{START} hf-finish.service"]),
        ("exited", "75", "17", [ASKED]),
        ("exited", "75", "", [ASKED, f"{START} hf-park.service"]),
        ("exited", "75", "0", [ASKED, f"{START} hf-park.service"]),
        ("exited", "76", "17", [ASKED]),
        ("exited", "76", "", [ASKED, f"{START} hf-park.service"]),
        ("exited", "74", "", []),  # a failure of the unit: OnFailure=
        ("killed", "KILL", "", []),
        ("", "", "", []),
    ],
)
def test_end_of_the_trainer(bench: Bench, code: str, status: str, job: str, calls: list[str]) -> None:
    bench.double("systemctl", f"[[ $1 != show ]] || echo '{job}'")
    bench.run("machine/hf-ended", "holdfast.service", EXIT_CODE=code, EXIT_STATUS=status)
    assert bench.calls() == calls


def test_whom_a_newer_attempt_has_overtaken_hands_over(bench: Bench) -> None:
    """To hf-standby.service: a call to AWS that fails here would start the trainer again, above the newer one."""
    ended = {"EXIT_CODE": "exited", "EXIT_STATUS": "76", "HF_STANDBY": "on-notice"}
    done = bench.run("machine/hf-ended", "holdfast.service", HF_RUNTIME=str(bench.home / "run"), **ended)
    assert done.returncode == 0
    assert (bench.home / "run" / HANDING_OVER.name).exists()
    assert bench.calls() == []


def test_a_container_does_not_outlive_its_unit(bench: Bench) -> None:
    bench.double("docker")
    killed = {"EXIT_CODE": "killed", "EXIT_STATUS": "KILL", "HF_IMAGE": "x@sha256:0"}
    bench.run("machine/hf-ended", "holdfast.service", **killed)
    assert bench.calls() == ["docker rm -f holdfast-run"]


def test_run_on_the_machine(bench: Bench) -> None:
    bench.double("holdfast", 'printf "%s\\n" "$@" >"$HF_MOUNT/words"')
    assert bench.run("machine/hf-run").returncode == 0
    run_dir = f"{bench.root}/mnt/run"
    assert (bench.root / "mnt/words").read_text().splitlines() == [
        *("supervise", "--directory", run_dir),
        *("--", "train", "--checkpoint-dir", run_dir),
        *("--metrics", f"{run_dir}/training.csv", "--note", "two words"),
    ]


def test_slices_get_the_runs_of_a_sweep(bench: Bench) -> None:
    words = supervised(bench, HF_SLICES="3")
    root = f"{bench.root}/mnt/runs"
    assert words[:6] == ["sweep", f"{bench.root}/etc/sweep.jsonl", "--root", root, "--local", "3"]
    assert words[6:10] == ["--", "train", "--checkpoint-dir", "{run_dir}"]


def test_run_in_docker(bench: Bench) -> None:
    bench.double("chown")
    bench.run("machine/hf-run", HF_IMAGE="x@sha256:0")
    assert bench.calls()[-1].startswith(
        f"run-docker.sh supervise --directory {bench.root}/mnt/run -- train --checkpoint-dir {bench.root}/mnt/run "
    )


SUPERVISE = ("supervise", "--directory", "/mnt/holdfast/run")


def docker_words(bench: Bench, *words: str, **environment: str) -> str:
    bench.double("docker")
    words = (*(words or SUPERVISE), "--", "train", "--lr", "0.1")
    bench.run("run-docker.sh", *words, HF_IMAGE="x@sha256:0", **environment)
    return bench.calls()[-1]


def test_docker_gets_what_a_run_needs(bench: Bench) -> None:
    called = docker_words(bench)
    assert called.endswith("x@sha256:0 supervise --directory /mnt/holdfast/run -- train --lr 0.1")
    for option in (
        "--gpus all",
        "-e HOLDFAST_RUN_DIR=/mnt/holdfast/run ",
        "--network host",
        "--stop-timeout 100",
        "--shm-size",
        "-v",
    ):
        assert option in called
    assert "--init" not in called


# From SIGTERM to SIGKILL: what a launcher grants, its run must know, or it leaves earlier than it must.


def seconds(pattern: str, text: str) -> list[int]:
    return [int(found) for found in re.findall(pattern, text)]


def test_every_launcher_passes_on_the_grace_that_it_grants(bench: Bench) -> None:
    """5 s less, which the run's end itself takes."""
    granted = {
        r"(?m)^TimeoutStopSec=([0-9]+)$": r"(?m)^Environment=HOLDFAST_TERM_GRACE=([0-9]+)s$",
        r"terminationGracePeriodSeconds: ([0-9]+)": r"name: HOLDFAST_TERM_GRACE, value: ([0-9]+)s",
    }
    found = 0
    for file in sorted(KIT.parent.rglob("*")):
        if file.suffix not in (".service", ".yaml") or file.name == "holdfast-volume.service":
            continue
        text = file.read_text()
        for grants, passes in granted.items():
            assert seconds(passes, text) == [given - 5 for given in seconds(grants, text)], file
            found += len(seconds(grants, text))
    assert found >= 8
    called = docker_words(bench)
    (docker,) = seconds(r"--stop-timeout ([0-9]+)", called)
    assert seconds(r"-e HOLDFAST_TERM_GRACE=([0-9]+)s", called) == [docker - 5]
    (unit,) = seconds(r"(?m)^TimeoutStopSec=([0-9]+)$", (KIT / "units/holdfast.service").read_text())
    assert docker < unit
    slurm = (KIT.parent / "slurm/train.sbatch").read_text()
    assert "export HOLDFAST_TERM_GRACE=${HOLDFAST_TERM_GRACE:-25s}" in slurm  # Slurm's KillWait is 30 s


def test_docker_gets_the_file_of_a_sweep_and_all_slices(bench: Bench) -> None:
    called = docker_words(bench, "sweep", "/etc/holdfast/sweep.jsonl", "--root", "/mnt/holdfast/runs")
    for option in (
        "--gpus all",
        "--no-healthcheck",
        "-v /etc/holdfast/sweep.jsonl:/etc/holdfast/sweep.jsonl:ro",
    ):
        assert option in called


def test_docker_refuses_an_image_that_can_change(bench: Bench) -> None:
    bench.double("docker")
    assert bench.run("run-docker.sh", *SUPERVISE, "--", "train", HF_IMAGE="x:latest").returncode == 64
    assert bench.calls() == []


# Two tiers


def supervised(bench: Bench, *words: str, **environment: str) -> list[str]:
    bench.double("holdfast", 'printf "%s\\n" "$@" >"$HF_MOUNT/words"')
    fast = str(bench.root / "fast")
    assert bench.run("machine/hf-run", *words, HF_FAST=fast, **environment).returncode == 0
    return (bench.root / "mnt/words").read_text().splitlines()


def test_nvme_commits_to_the_drives_and_mirrors_to_the_volume(bench: Bench) -> None:
    words = supervised(bench, HF_NVME="1")
    mount, fast = bench.root / "mnt", bench.root / "fast"
    assert words[:3] == ["supervise", "--directory", f"{fast}/run"]
    assert words[3:7] == ["--mirror", f"{mount}/run", "--home-mount", str(mount)]
    assert words[words.index("--checkpoint-dir") + 1] == f"{fast}/run"


S3 = "bucket/runs/r1"


@pytest.mark.parametrize("nvme", ["", "1"])
def test_home_in_s3_is_the_same_for_every_machine(bench: Bench, nvme: str) -> None:
    words = supervised(bench, HF_S3=S3, HF_NVME=nvme)
    assert words[2] == f"{bench.root}/{'fast' if nvme else 'mnt'}/run"
    assert words[3:5] == ["--mirror", f"rclone:holdfast:{S3}/run"]
    assert "--home-mount" not in words


def test_each_run_of_a_sweep_has_its_own_home(bench: Bench) -> None:
    words = supervised(bench, HF_S3=S3, HF_SLICES="3")
    assert words[6:8] == ["--mirror", f"rclone:holdfast:{S3}/runs/{{name}}"]
    words = supervised(bench, HF_NVME="1", HF_SLICES="3")
    assert words[3] == f"{bench.root}/fast/runs"
    assert words[6:10] == ["--mirror", f"{bench.root}/mnt/runs/{{name}}", "--home-mount", f"{bench.root}/mnt"]


def test_docker_gets_the_mirror_the_drives_and_the_remote(bench: Bench) -> None:
    bench.double("chown")
    bench.run("machine/hf-run", HF_IMAGE="x@sha256:0", HF_S3=S3)
    assert f"/mnt/run --mirror rclone:holdfast:{S3}/run -- train" in bench.calls()[-1]
    mirror = ("--mirror", "rclone:holdfast:x/run")
    called = docker_words(bench, *SUPERVISE, *mirror, HF_NVME="1", RCLONE_CONFIG_HOLDFAST_TYPE="s3")
    run = "supervise --directory /mnt/holdfast/run --mirror rclone:holdfast:x/run -- train --lr 0.1"
    assert called.endswith(f"x@sha256:0 {run}")
    assert "-v /mnt/fast:/mnt/fast" in called
    assert "-e RCLONE_CONFIG_HOLDFAST_TYPE" in called


def setup_with_rclone(bench: Bench, said: str, **environment: str) -> subprocess.CompletedProcess[str]:
    bench.double("cloud-init", "echo us-east-1")
    bench.double("holdfast")
    bench.double("rclone", f"printf '%s\\n' '{said}' '- os: linux'")
    bench.double("docker", f"[[ $1 != run ]] || printf '%s\\n' '{said}' '- os: linux'")
    return bench.run("machine/hf-setup", HF_GPU="0", HF_S3=S3, **environment)


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("rclone v1.53.3-DEV", 0),
        ("rclone v1.60.1-DEV", 0),
        ("rclone v2.0.0", 0),
        ("rclone v1.52.3", 1),
        ("docker: rclone: not found", 1),
        ("", 1),
    ],
)
@pytest.mark.parametrize("image", ["", "x@sha256:0"])
def test_setup_asks_rclone_for_its_version(bench: Bench, said: str, code: int, image: str) -> None:
    done = setup_with_rclone(bench, said, HF_IMAGE=image)
    assert done.returncode == code, done.stderr
    assert ("rclone" in done.stderr) == (code != 0)
    asked = "docker run --rm --entrypoint rclone x@sha256:0 version" if image else "rclone version"
    assert asked in bench.calls()


def test_setup_installs_rclone_on_the_machine(bench: Bench) -> None:
    bench.double("cloud-init", "echo us-east-1")
    bench.double("holdfast")
    installs = "#!/bin/bash\necho rclone v1.60.1\n"
    bench.double(
        "apt-get",
        f"[[ $2 != install ]] || {{ printf '{installs}' >{bench.bin}/rclone; chmod +x {bench.bin}/rclone; }}",
    )
    for tool in ("bash", "env", "chmod", "cat", "head"):
        (bench.bin / tool).symlink_to(shutil.which(tool) or tool)
    # No /usr/bin: this machine may have rclone.
    done = bench.run("machine/hf-setup", HF_GPU="0", HF_S3=S3, PATH=str(bench.bin))
    assert done.returncode == 0, done.stderr
    assert "apt-get -qq install -y -o DPkg::Lock::Timeout=600 rclone" in bench.calls()


@pytest.mark.parametrize("right", [True, False])
def test_a_machine_whose_package_was_changed_asks_to_be_replaced(bench: Bench, right: bool) -> None:
    """`hf-aws up` was called between its launch and this moment, and `hf sick` is in that package."""
    packed = base64.b64encode(lzma.compress(json.dumps({"one": "1"}).encode()))
    digest = hashlib.sha256(base64.b64decode(packed)).hexdigest()
    (bench.root / "boto3.py").write_text(f"""
class client:
    def __init__(self, service): pass
    def get_paginator(self, _): return self
    def paginate(self, **_): return [{{"Parameters": [{{"Name": "0", "Value": {packed.decode()!r}}}]}}]
    def set_instance_health(self, **asked): open({str(bench.log)!r}, "a").write(str(asked) + chr(10))
""")
    bench.double("cloud-init", "echo i-1")
    place = bench.home / "holdfast_aws"
    bench.planted = ("/opt/holdfast/holdfast_aws", str(place))
    done = bench.run(
        "machine/fetch-kit", HF_RUN="r1", HF_KIT=digest if right else "0", PYTHONPATH=str(bench.root)
    )
    assert (done.returncode == 0) == right == place.exists(), done.stderr
    asked = {"InstanceId": "i-1", "HealthStatus": "Unhealthy", "ShouldRespectGracePeriod": False}
    assert (str(asked) in bench.calls()) != right


@pytest.mark.parametrize(("fails", "code"), [("update", 0), ("install", 100)])
def test_apt_waits_for_ubuntus_own_updates(bench: Bench, fails: str, code: int) -> None:
    bench.double("cloud-init", "echo us-east-1")
    bench.double("systemctl")
    bench.double("apt-get", f"[[ $2 != {fails} ]] || exit 100")
    assert bench.run("machine/hf-kit", HF_PYTHON="/bin/false").returncode == code
    calls = bench.calls()
    assert calls[0].startswith("systemctl stop apt-daily.timer apt-daily.service")
    assert "apt-get -qq install -y -o DPkg::Lock::Timeout=600 python3-boto3" in calls


def test_setup_makes_the_array_before_the_image(bench: Bench) -> None:
    bench.double("cloud-init", "echo us-east-1")
    for name in ("mdadm", "mkfs.xfs", "docker"):
        bench.double(name)
    bench.double("raid0", "exit 78", folder=bench.home)
    assert bench.run("machine/hf-setup", HF_GPU="0", HF_NVME="1", HF_IMAGE="x@sha256:0").returncode == 78
    assert not any(call.startswith("docker") for call in bench.calls())


def test_setup_of_a_machine_without_gpu_fails_before_the_image(bench: Bench) -> None:
    bench.double("cloud-init", "echo us-east-1")
    bench.double("nvidia-smi", "exit 9")
    bench.double("docker")
    done = bench.run("machine/hf-setup", HF_IMAGE="x@sha256:0")
    assert done.returncode == 1
    assert "no GPU" in done.stderr
    assert not any(call.startswith("docker") for call in bench.calls())


def test_setup_in_docker(bench: Bench) -> None:
    bench.double("cloud-init", "echo us-east-1")
    bench.double("nvidia-smi")
    bench.double("docker", "[[ $1 != image ]]")
    assert bench.run("machine/hf-setup", HF_IMAGE="x@sha256:0").returncode == 0
    assert "docker pull -q x@sha256:0" in bench.calls()
    assert (bench.bin / "holdfast").is_symlink()


def test_setup_without_programs_fails(bench: Bench) -> None:
    bench.double("cloud-init", "echo us-east-1")
    done = bench.run("machine/hf-setup", HF_GPU="0")
    assert done.returncode == 1
    assert "--image" in done.stderr


# MIG


def mig(bench: Bench, made: int, enabled: str = "Enabled") -> None:
    slices = " ".join(str(n) for n in range(made))
    bench.double(
        "nvidia-smi",
        f"""case "$*" in
  *mig.mode.current*) echo {enabled} ;;
  -L) echo "GPU 0: A100 (UUID: GPU-1)"
    [[ ! -e $HF_MOUNT/cut ]] || for n in {slices}; do echo "  MIG 1g (UUID: MIG-$n)"; done ;;
  *-cgi*) touch $HF_MOUNT/cut ;;
esac""",
    )


def test_mig_cuts_once(bench: Bench) -> None:
    mig(bench, 7, "Disabled")
    assert bench.run("mig/hf-mig", HF_SLICES="7").returncode == 0
    assert any("mig -i 0 -cgi 19,19,19,19,19,19,19 -C" in call for call in bench.calls())
    assert any("-i 0 -mig 1" in call for call in bench.calls())
    assert bench.run("mig/hf-mig", HF_SLICES="7").returncode == 0
    assert len([call for call in bench.calls() if "-cgi" in call]) == 1


def test_mig_refuses_a_gpu_that_is_cut_otherwise(bench: Bench) -> None:
    mig(bench, 3)
    done = bench.run("mig/hf-mig", HF_SLICES="2")
    assert done.returncode == 78
    assert "3 slices, not 2" in done.stderr


# Local drives


@pytest.fixture
def p4d(bench: Bench) -> Callable[..., subprocess.CompletedProcess[str]]:
    """A P4d: EBS first, as EC2 numbers them, then local drives."""
    (bench.root / "proc").mkdir()
    (bench.root / "proc/mounts").write_text("/dev/nvme0n1 / ext4 rw 0 0\n")
    for name in ("mdadm", "mkfs.xfs", "mount"):
        bench.double(name)
    bench.double("mountpoint", "exit 1")

    def drive(name: str, model: str) -> None:
        (bench.root / f"sys/block/{name}/device").mkdir(parents=True)
        (bench.root / f"sys/block/{name}/device/model").write_text(model.ljust(40) + "\n")

    def run(*drives: tuple[str, str]) -> subprocess.CompletedProcess[str]:
        for name, model in drives:
            drive(name, model)
        return bench.run("p4d/raid0", str(bench.root / "fast"), HF_DEV_ROOT=str(bench.root))

    return run


EBS = "Amazon Elastic Block Store"
LOCAL = "Amazon EC2 NVMe Instance Storage"


def test_raid0_takes_all_local_drives_and_no_other(bench: Bench, p4d: Callable[..., object]) -> None:
    p4d(("nvme0n1", EBS), ("nvme1n1", EBS), *((f"nvme{n}n1", LOCAL) for n in range(2, 10)))
    drives = " ".join(f"/dev/nvme{n}n1" for n in range(2, 10))
    assert f"mdadm --create /dev/md/hf --run --force --level=0 --raid-devices=8 {drives}" in bench.calls()
    assert not any("nvme0n1" in call or "nvme1n1" in call for call in bench.calls())


def test_raid0_leaves_used_drives_alone(bench: Bench, p4d: Callable[..., object]) -> None:
    (bench.root / "sys/block/nvme1n1/holders/md0").mkdir(parents=True)
    (bench.root / "sys/block/nvme2n1/nvme2n1p1").mkdir(parents=True)
    (bench.root / "proc/mounts").write_text("/dev/nvme3n1 /data xfs rw 0 0\n")
    p4d(*((f"nvme{n}n1", LOCAL) for n in range(1, 5)))
    assert "mkfs.xfs -f -q /dev/nvme4n1" in bench.calls()
    assert not any(call.startswith("mdadm") for call in bench.calls())


def test_raid0_takes_what_the_ami_has_made_of_the_drives(
    bench: Bench, p4d: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    (bench.root / "sys/block/nvme1n1/holders/dm-0").mkdir(parents=True)
    bench.double("mountpoint", f"[[ $2 == {bench.root}/opt/dlami/nvme ]]")
    assert p4d(("nvme0n1", EBS), ("nvme1n1", LOCAL)).returncode == 0
    assert f"mount --bind {bench.root}/opt/dlami/nvme {bench.root}/fast" in bench.calls()
    assert not any(call.startswith(("mdadm", "mkfs")) for call in bench.calls())


def test_raid0_without_local_drives_touches_nothing(
    bench: Bench, p4d: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    assert p4d(("nvme0n1", EBS), ("nvme1n1", EBS)).returncode == 78
    assert not any(call.startswith(("mdadm", "mkfs")) for call in bench.calls())


# EFA


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("NCCL INFO NET/OFI Selected Provider is efa (found 4 nics)", 0),
        ("NCCL INFO NET/Socket : Using [0]eth0\nNCCL INFO Using network Socket", 78),
        ("NCCL INFO NET/OFI Selected Provider is efa\nNCCL INFO Using network Socket", 78),
        ("", 78),
    ],
)
def test_efa_check_never_goes_on_over_tcp(bench: Bench, said: str, code: int) -> None:
    bench.double("all_reduce_perf", f"cat <<'END'\n{said}\nEND")
    assert bench.run("p4d/efa-check", "--", "all_reduce_perf", HF_SKIP_DEVICES="1").returncode == code


@pytest.mark.parametrize("script", ["machine/hf-node", "p4d/efa-check"])
def test_efa_gets_no_variable_that_its_software_sets_itself(script: str) -> None:
    """libfabric from 1.18 and its NCCL plugin from 1.7 choose provider, protocol and RDMA by the machine."""
    for name in ("FI_PROVIDER", "FI_EFA_USE_DEVICE_RDMA", "FI_EFA_FORK_SAFE", "NCCL_PROTO"):
        assert name not in (KIT / script).read_text()


def test_efa_check_needs_a_device(bench: Bench) -> None:
    assert bench.run("p4d/efa-check", "--", "true").returncode == 78


# Several nodes


NODES = [Node("i-b", 20, "10.0.0.2"), Node("i-a", 10, "10.0.0.1"), Node("i-c", 30, "10.0.0.3")]


def test_nodes_agree_on_the_oldest() -> None:
    ranks = {node.instance: words(NODES, node.instance, 3) for node in NODES}
    assert ranks["i-a"] == ["--nnodes", "3", "--node-rank", "0", "--master", "10.0.0.1:29500"]
    assert sorted(str(found and found[3]) for found in ranks.values()) == ["0", "1", "2"]
    assert len({found and found[5] for found in ranks.values()}) == 1


def test_nodes_wait_for_all_and_not_for_ever() -> None:
    class Clock:
        time = 0.0

        def now(self) -> float:
            return self.time

        def sleep(self, seconds: float) -> None:
            self.time += seconds

    clock = Clock()
    assert wait_for_all(lambda: NODES if clock.time > 60 else NODES[:2], clock, "i-b", 3)[3] == "1"
    begin = clock.now()
    with pytest.raises(StopError, match="2 of 3 nodes"):
        wait_for_all(lambda: NODES[:2], clock, "i-b", 3)
    supervisor = (KIT.parents[1] / "lib/holdfast/cli/supervise/supervisor.cc").read_text()
    (minutes,) = re.findall(r"kLongLife = (\d+)min;", supervisor)
    assert clock.now() - begin < 60 * int(minutes) / 1.5, "supervise would take the wait for progress"


def test_node_joins_by_holdfast_launch(bench: Bench) -> None:
    bench.double("hf", "echo --nnodes 3 --node-rank 1 --master 10.0.0.1:29500", folder=bench.home)
    bench.double("nvidia-smi", "printf 'GPU 0: A100\\nGPU 1: A100\\n'")
    bench.double("holdfast")
    bench.run("machine/hf-node", "train", "--lr", "0.1", HF_NODES="3")
    launch = "holdfast launch --nproc 2 --nnodes 3 --node-rank 1 --master 10.0.0.1:29500 -- train --lr 0.1"
    assert bench.calls()[-1] == launch


@pytest.mark.parametrize(
    ("shared", "kind"),
    [("fs-1.fsx.us-east-1.amazonaws.com@tcp:/x", "lustre"), ("fs-1.efs.amazonaws.com:/", "nfs4")],
)
def test_nodes_share_a_file_system_that_passes_the_probe(bench: Bench, shared: str, kind: str) -> None:
    bench.double("mountpoint", "exit 1")
    bench.double("mount")
    bench.double("holdfast", "exit 1")
    assert bench.run("machine/hf-shared", "up", HF_SHARED=shared).returncode == 78
    assert any(call.startswith(f"mount -t {kind} ") for call in bench.calls())


def test_a_file_system_that_never_comes_is_for_a_person(bench: Bench) -> None:
    bench.double("mountpoint", "exit 1")
    bench.double("mount", "exit 32")
    wrong = {"HF_SHARED": "fs-0.efs.amazonaws.com:/", "HF_RUNTIME": str(bench.root)}
    codes = [bench.run("machine/hf-shared", "up", **wrong).returncode for _ in range(20)]
    assert codes == [75] * 19 + [78]


# The order in which systemd stops


def test_trainer_stops_before_the_volume_goes() -> None:
    """systemd stops in the reverse order of After=; Requires= makes a stop of the volume stop the trainer."""
    unit = (KIT / "units" / "holdfast.service").read_text()
    after = next(line for line in unit.splitlines() if line.startswith("After="))
    assert "holdfast-volume.service" in after
    assert "Requires=holdfast-volume.service" in unit
    assert "KillMode=mixed" in unit


# The Dockerfile


def test_dockerfile_copies_all_libraries(tmp_path: Path) -> None:
    program = shutil.which("curl") or shutil.which("git")
    if program is None or os.uname().machine != "x86_64":
        pytest.skip("no program with libraries of its own here")
    subprocess.run([str(KIT / "collect-libraries"), program, str(tmp_path)], check=True)
    copied = {path.name for path in tmp_path.iterdir()}
    assert "libz.so.1" in copied
    assert not {"libc.so.6", "libm.so.6"} & copied


def test_dockerfile_is_for_no_root_and_process_one() -> None:
    text = (KIT / "Dockerfile").read_text()
    last = text[text.rindex("\nFROM ") :]
    assert "\nUSER trainer\n" in last
    assert 'ENTRYPOINT ["holdfast"]' in last
    assert "HEALTHCHECK" in last


def test_programs_know_the_options_that_the_kit_gives_them() -> None:
    holdfast = Path(os.environ["HOLDFAST_BUILD"]) / "bin" / "holdfast"
    if not holdfast.exists():
        pytest.skip(f"{holdfast} is not built")

    def knows(command: str, *options: str) -> bool:
        told = subprocess.run([holdfast, command, "--help"], capture_output=True, text=True, check=False)
        return told.returncode == 0 and all(option in told.stdout for option in options)

    assert knows("supervise", "--directory", "--mirror", "--home-mount")
    assert knows("sweep", "--root", "--local", "--mirror", "--home-mount")
    assert knows("launch", "--nproc", "--nnodes", "--node-rank", "--master")
    assert knows("verify")
    assert knows("probe")
    assert knows("health", "DIR")


# Planted bugs: what the tests above look for does happen without the line that prevents it.


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        ('== "Amazon EC2 NVMe Instance Storage" ]]', "!= nothing ]]"),
        ('"$root/sys/block/$name/holders/*"', "/nowhere/at/all"),
        ('"^/dev/$name "', '"^nothing"'),
    ],
    ids=["guesses the empty disk", "takes an array's drive", "takes a mounted drive"],
)
def test_raid0_needs_each_of_its_guards(
    bench: Bench, p4d: Callable[..., subprocess.CompletedProcess[str]], good: str, bad: str
) -> None:
    (bench.root / "sys/block/nvme1n1/holders/md0").mkdir(parents=True)
    (bench.root / "proc/mounts").write_text("/dev/nvme2n1 /data xfs rw 0 0\n")
    bench.planted = (good, bad)
    p4d(("nvme0n1", EBS), *((f"nvme{n}n1", LOCAL) for n in range(1, 5)))
    (made,) = (call for call in bench.calls() if call.startswith("mdadm"))
    assert any(drive in made for drive in ("nvme0n1", "nvme1n1", "nvme2n1"))


def test_planted_efa_check_goes_on_over_tcp(bench: Bench) -> None:
    bench.double("all_reduce_perf", "echo 'NET/OFI Selected Provider is efa'; echo 'Using network Socket'")
    bench.planted = ("! grep -q 'Using network Socket'", "true; grep -q ''")
    assert bench.run("p4d/efa-check", "--", "all_reduce_perf", HF_SKIP_DEVICES="1").returncode == 0
