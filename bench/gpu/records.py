"""What a session of bench/gpu_session leaves: a JSON file a job, logs, the jobs' own files, and one archive of all."""
import hashlib
import json
import os
import shlex
import shutil
import subprocess
import tarfile
from pathlib import Path

TAIL = 4000  # characters


def asked(*command):
    """A command's output, or nothing."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace").strip() if done.returncode == 0 else ""


def commit_of(root):
    """The source's commit, with a digest of what was changed since. bench/gpu_pack leaves it in a file."""
    written = root / "COMMIT"
    if written.is_file():
        return written.read_text(encoding="utf-8").strip()
    commit = asked("git", "-C", str(root), "rev-parse", "--short=12", "HEAD") or "unknown"
    changes = asked("git", "-C", str(root), "diff", "HEAD")
    return commit + (f"+{hashlib.sha256(changes.encode()).hexdigest()[:8]}" if changes else "")


def has_gpu():
    return os.path.exists("/dev/nvidiactl") or "GPU" in asked("nvidia-smi", "-L")


def device_of(kind):
    if kind == "cpu":
        return f"cpu, {len(os.sched_getaffinity(0))} cores"
    name = asked("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader").split("\n")[0]
    return ", driver ".join(name.split(", ")) if name else "a GPU without nvidia-smi"


def in_words(command):
    return shlex.join(command)


def replace(path, text):
    part = path.with_name(f".{path.name}.part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)


class Store:
    def __init__(self, folder, commit, device, scale):
        self.folder, self.commit, self.device, self.scale = folder, commit, device, scale
        self.files, self.logs, self.archive = folder / "files", folder / "logs", folder / "all.tar.gz"
        self.cache = folder / "cache"  # outlives commits
        for one in (self.files, self.logs, self.cache):
            one.mkdir(parents=True, exist_ok=True)
        for old in folder.glob(".work-*"):  # of a session that was killed
            shutil.rmtree(old, ignore_errors=True)

    def bring(self, cache):
        """What an earlier session has left; what is here already stays."""
        for path in cache.iterdir():
            if path.is_file() and not (self.cache / path.name).exists():
                shutil.copy(path, self.cache / path.name)

    def log_of(self, name):
        return self.logs / f"{name}.log"

    def earlier(self, name):
        """The record of this job, if it is of this commit, device and scale."""
        try:
            record = json.loads((self.folder / f"{name}.json").read_text(encoding="utf-8"))
            same = (record["commit"], record["device"], record["scale"]) == (self.commit, self.device, self.scale)
            return record if same and self.commit != "unknown" else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def kept(self, name):
        record = self.earlier(name)
        return record if record and record.get("complete") else None

    def clear(self, name):
        """A bench goes on with the rows of an interrupted one, but not with another commit's."""
        record = self.earlier(name)
        if record is None or record.get("complete"):
            for path in [*self.files.glob(f"{name}.*"), self.files / name]:
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)

    def result_of(self, name, tail):
        """What the job's own JSON file says (files/NAME.json), else its last line."""
        try:
            return json.loads((self.files / f"{name}.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            last = next((line for line in reversed(tail.splitlines()) if line.strip()), "")
        try:
            return json.loads(last)
        except ValueError:
            return last

    def write(self, name, rc, seconds, command, complete=True):
        log = self.log_of(name)
        text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
        record = {"name": name, "rc": rc, "seconds": round(seconds, 1), "command": in_words(command),
                  "commit": self.commit, "device": self.device, "scale": self.scale, "complete": complete,
                  "result": self.result_of(name, text), "tail": text[-TAIL:]}
        replace(self.folder / f"{name}.json", json.dumps(record, indent=1, ensure_ascii=False) + "\n")
        self.pack()

    def pack(self):
        """By a rename: the archive that is there is whole."""
        part = self.archive.with_name(f".{self.archive.name}.part")
        with tarfile.open(part, "w:gz") as archive:
            for path in sorted(self.folder.iterdir()):
                if not path.name.startswith(".") and path != self.archive:
                    archive.add(path, arcname=f"{self.folder.name}/{path.name}")
        os.replace(part, self.archive)
