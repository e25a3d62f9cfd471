"""What a machine gets: a cloud-config with scripts and units, at most 16 KB, and the package, which is larger.

The package goes through SSM parameters of the stack; the cloud-config has its digest, and `fetch-kit` gets it.
"""

from __future__ import annotations

import ast
import base64
import functools
import gzip
import hashlib
import json
import lzma
import shlex
from pathlib import Path
from typing import Any

from holdfast_aws.plan import MOUNT, LaunchPlan, UsageError
from holdfast_aws.policy import ACL
from holdfast_aws.standby import NEVER

LIMIT = 16384  # bytes, before base64: EC2's
KIT = Path(__file__).resolve().parents[1]
PACKAGE = Path(__file__).resolve().parent
ENTRY = "machine"
SCRIPTS = ("fetch-kit", "hf", "hf-kit", "hf-run", "hf-ended", "hf-setup")


def user_data(plan: LaunchPlan) -> str:
    """For the launch template: base64 of the compressed cloud-config."""
    packed = gzip.compress(cloud_config(plan).encode(), 9, mtime=0)
    if len(packed) > LIMIT:
        raise UsageError(
            f"the user data takes {len(packed)} bytes, EC2 allows {LIMIT}: shorten the command, --setup or --sweep"
        )
    return base64.b64encode(packed).decode()


def cloud_config(plan: LaunchPlan) -> str:
    """Readable; JSON is YAML."""
    return "#cloud-config\n" + json.dumps(_config(plan), indent=1, ensure_ascii=False) + "\n"


def _config(plan: LaunchPlan) -> dict[str, Any]:
    units = _units(plan)
    files = [
        _file("/etc/holdfast/run.env", _environment(plan), "0600"),
        _file("/etc/holdfast/command", "".join(f"{word}\n" for word in plan.command), "0600"),
        *(_file(f"/opt/holdfast/{name}", (KIT / "machine" / name).read_text(), "0755") for name in SCRIPTS),
        *(_file(f"/etc/systemd/system/{name}", _unit(plan, name)) for name in units),
    ]
    if plan.setup:
        files.append(_file("/etc/holdfast/setup", f"{plan.setup}\n", "0600"))
    if plan.image:
        files.append(_file("/opt/holdfast/run-docker.sh", (KIT / "run-docker.sh").read_text(), "0755"))
        in_docker = (KIT / "machine" / "holdfast-in-docker").read_text()
        files.append(_file("/opt/holdfast/holdfast-in-docker", in_docker, "0755"))
    if plan.nvme:
        files.append(_file("/opt/holdfast/raid0", (KIT / "p4d" / "raid0").read_text(), "0755"))
    if plan.slices:
        files.append(_file("/opt/holdfast/hf-mig", (KIT / "mig" / "hf-mig").read_text(), "0755"))
        files.append(_file("/etc/holdfast/sweep.jsonl", plan.sweep))  # the container's user reads it
    if plan.nodes > 1:
        for script in ("machine/hf-node", "machine/hf-shared", "p4d/efa-check"):
            files.append(_file(f"/opt/holdfast/{Path(script).name}", (KIT / script).read_text(), "0755"))
    timers = ["hf-health.timer"] + ([] if plan.shared or plan.in_s3 else ["hf-lead-snapshot.timer"])
    begin = ["holdfast-setup.service", "holdfast-volume.service", *timers]
    if plan.stands_by != NEVER:
        begin.append("hf-standby.service")
    return {
        "write_files": files,
        "runcmd": [
            ["systemctl", "daemon-reload"],
            ["systemctl", "enable", *(["hf-mig.service"] if plan.slices else []), "holdfast.service", *begin],
            ["systemctl", "start", "--no-block", *begin],
        ],
    }


def _units(plan: LaunchPlan) -> list[str]:
    every = sorted(path.name for path in (KIT / "units").iterdir())
    if plan.in_s3:
        every = [name for name in every if not name.startswith("hf-lead-snapshot")]
    if plan.stands_by == NEVER:
        every.remove("hf-standby.service")
    return [name for name in every if plan.slices or name != "hf-mig.service"]


def _unit(plan: LaunchPlan, name: str) -> str:
    text = (KIT / "units" / name).read_text()
    if plan.shared and name == "holdfast-volume.service":
        text = text.replace("/opt/holdfast/hf volume", "/opt/holdfast/hf-shared")
    if plan.in_s3 and name == "holdfast-volume.service":
        text = text.replace("/opt/holdfast/hf volume", "/opt/holdfast/hf home")
        text = text.replace(
            "the run's volume, found or made or moved here, checked and mounted", "where home is"
        )
    return text


def _file(path: str, content: str, permissions: str = "0644") -> dict[str, str]:
    return {"path": path, "permissions": permissions, "content": content}


def _environment(plan: LaunchPlan) -> str:
    """Read by systemd and by bash; settings.py says what each means."""
    values = {
        "HF_RUN": plan.run,
        "HF_KIT": hashlib.sha256(kit(plan)).hexdigest(),
        "HF_SIZE_GIB": str(plan.size_gib),
        "HF_IOPS": str(plan.iops),
        "HF_THROUGHPUT": str(plan.throughput),
        "HF_FILESYSTEM": plan.filesystem,
        "HF_MOUNT": MOUNT,
        "HF_RUN_DIRS": ":".join(plan.run_dirs),
        "HF_GPU": "1" if plan.gpu else "0",
        "HF_IMAGE": plan.image,
        "HF_SLICES": str(plan.slices),
        "HF_NODES": str(plan.nodes),
        "HF_SHARED": plan.shared,
        "HF_NVME": "1" if plan.nvme else "",
        "HF_STANDBY": "" if plan.stands_by == NEVER else plan.stands_by,
        **(_s3(plan) if plan.in_s3 else {}),
        **plan.environment,
    }
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in values.items() if value)


def _s3(plan: LaunchPlan) -> dict[str, str]:
    """The remote "holdfast" of rclone, which reads these by itself; credentials are the instance role's."""
    if not plan.region:
        raise UsageError("--home s3 needs the region of the run: --region NAME, or aws configure")
    remote = {
        "TYPE": "s3",
        "PROVIDER": "AWS",
        "ENV_AUTH": "true",
        "REGION": plan.region,
        # The machine may not create buckets, and rclone would ask for it before the first object.
        "NO_CHECK_BUCKET": "true",
        "ACL": ACL,
        "SERVER_SIDE_ENCRYPTION": "AES256",
    }
    # No file: the remote is all here.
    return {
        "HF_S3": plan.s3,
        "RCLONE_CONFIG": "/dev/null",
        **{f"RCLONE_CONFIG_HOLDFAST_{key}": value for key, value in remote.items()},
    }


def kit(plan: LaunchPlan) -> bytes:
    """The modules that a machine of the plan needs, by name, as compressed JSON."""
    unneeded = {"executor", "linux_host", "lead_snapshot"} if plan.in_s3 else {"home"}
    unneeded |= {"standby"} if plan.stands_by == NEVER else set()
    return _kit(frozenset(unneeded if plan.nodes > 1 else unneeded | {"nodes"}))


@functools.lru_cache(maxsize=4)  # half a second, and a template needs it twice
def _kit(without: frozenset[str]) -> bytes:
    sources = {
        name: _without_manual((PACKAGE / f"{name}.py").read_text(), keep_own=name == ENTRY)
        for name in machine_modules(without)
    }
    return lzma.compress(json.dumps(sources).encode(), preset=9 | lzma.PRESET_EXTREME)


def _without_manual(source: str, *, keep_own: bool) -> str:
    """The same program without comments, docstrings and types of arguments: a template may have 51,200 bytes.
    `hf --help` prints one. A decorator may read types, as that of the executor's actions does.
    """
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and not node.decorator_list:
            node.returns = None
            for argument in (*node.args.args, *node.args.kwonlyargs):
                argument.annotation = None
        if not isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.Module)) or not ast.get_docstring(node):
            continue
        if keep_own and isinstance(node, ast.Module):
            continue
        node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree) + "\n"


def machine_modules(without: frozenset[str] = frozenset()) -> list[str]:
    """What the entry imports, and what that imports. `without`: what it imports only in commands that nobody calls."""
    found: set[str] = set()
    wanted = {"__init__", ENTRY}
    while wanted:
        name = wanted.pop()
        found.add(name)
        for node in ast.walk(ast.parse((PACKAGE / f"{name}.py").read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == "holdfast_aws":
                wanted |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and str(node.module).startswith("holdfast_aws."):
                wanted.add(str(node.module).split(".")[1])
        wanted -= found | without
    return sorted(found)
