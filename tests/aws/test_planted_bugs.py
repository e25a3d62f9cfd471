"""Bugs planted into the package, one at a time: a test must fail for each of them. A plant whose text is no longer in
the source fails, too."""

from __future__ import annotations

import importlib
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

KIT = Path(__file__).resolve().parents[2] / "examples" / "aws_spot"
OURS = ("holdfast_aws", "crew", "lab", "fake_", "virtual", "scenarios", "strict", "test_")

Detector = Callable[[Callable[[str], ModuleType], Path], Any]


@contextmanager
def planted(folder: Path, file: str, old: str, new: str) -> Iterator[Callable[[str], ModuleType]]:
    """Imports test modules that see a copy of the package with the bug in it."""
    shutil.copytree(KIT / "holdfast_aws", folder / "holdfast_aws")
    source = folder / "holdfast_aws" / file
    text = source.read_text("utf-8")
    assert text.count(old) == 1, f"{file} has this {text.count(old)} times: {old}"
    source.write_text(text.replace(old, new), "utf-8")
    kept = {
        name: sys.modules.pop(name)
        for name in list(sys.modules)
        if name.startswith(OURS) and name != __name__
    }
    path = list(sys.path)
    sys.path[:0] = [str(folder), str(Path(__file__).parent)]
    importlib.invalidate_caches()
    try:
        yield importlib.import_module
    finally:
        sys.path[:] = path
        for name in [name for name in sys.modules if name.startswith(OURS) and name != __name__]:
            del sys.modules[name]
        sys.modules.update(kept)


def case_of(module: str, name: str, *arguments: Any) -> Detector:
    return lambda load, _: getattr(load(module), name)(*arguments)


def volume(name: str, *arguments: Any) -> Detector:
    return case_of("test_volume", name, *arguments)


def with_folder(module: str, name: str, *arguments: Any) -> Detector:
    return lambda load, folder: getattr(load(module), name)(folder, *arguments)


def lives(begin: int, end: int) -> Detector:
    def detect(load: Callable[[str], ModuleType], _: Path) -> None:
        module = load("test_lives")
        for seed in range(begin, end):
            module.live(seed)

    return detect


def races(load: Callable[[str], ModuleType], _: Path) -> None:
    for seed in range(50):
        load("test_volume").test_a_race_for_an_outcome_has_one_winner(seed)


PLANTS: dict[str, tuple[str, str, str, Detector]] = {
    "deletes the source before the copy is made": (
        "executor.py",
        '        name = self._of_move(lambda: self._cloud.create_volume(spec), "CreateVolume")\n',
        "        self._cloud.delete_volume(action.source)\n"
        '        name = self._of_move(lambda: self._cloud.create_volume(spec), "CreateVolume")\n',
        volume("test_move_to_another_zone"),
    ),
    "believes the tag, not the register": (
        "volume.py",
        "        if world.tagged:\n",
        "        if False:\n",
        volume("test_empty_registers_beside_a_tagged_thing_are_for_a_person", "volume"),
    ),
    "goes on although another was first": (
        "executor.py",
        "        if not self._call(lambda: self._registers.claim(action.generation, self._me.instance)):\n",
        "        self._call(lambda: self._registers.claim(action.generation, self._me.instance))\n        if False:\n",
        volume("test_two_claims_at_once_make_one_snapshot"),
    ),
    "copies a volume whose holder lives": (
        "volume.py",
        '    if volume.state == "in-use":\n        return _held(world, volume)\n    if volume.state == "creating":\n'
        '        return _poll(world, f"{volume.id} is being created")\n    return Claim(',
        "    return Claim(",
        volume("test_a_volume_whose_holder_lives_is_never_copied"),
    ),
    "does not look at the source again": (
        "volume.py",
        '    if source.state != "available":',
        "    if False:",
        volume("test_source_that_a_person_attaches_during_a_move_stays_the_runs_volume"),
    ),
    "leaves a foreign move open": (
        "volume.py",
        "    if move is not None:  # the one in the volume's zone is faster\n",
        "    if False:\n",
        volume("test_source_that_is_attached_during_the_snapshot_is_not_left_behind"),
    ),
    "commits what does not verify": (
        "volume.py",
        '    if local.verdict not in ("good", "nothing"):\n',
        "    if False:\n",
        volume("test_copy_that_does_not_verify_is_never_committed"),
    ),
    "commits without winning": (
        "executor.py",
        "        if self._move is not None and (book.open is None or book.open.number != self._move.generation):\n",
        "        if False:\n",
        races,
    ),
    "makes a file system again": (
        "volume.py",
        '    if local.content == "blank" and not world.book.formatted:\n',
        '    if local.content == "blank":\n',
        volume("test_blank_volume_of_a_run_that_had_a_file_system_is_for_a_person"),
    ),
    "reads an error as nothing there": (
        "registers.py",
        "        return parse(self._run, self._cloud.parameters(path_of(self._run)))\n",
        "        try:\n            return parse(self._run, self._cloud.parameters(path_of(self._run)))\n"
        "        except Exception:\n            return Book()\n",
        volume("test_registers_that_cannot_be_read_are_not_empty"),
    ),
    "takes a volume that is not visible yet for gone": (
        "volume.py",
        "world.missing_for >= world.limits.missing:\n",
        "world.missing_for >= 0:\n",
        volume("test_volume_that_is_not_visible_yet_is_waited_for"),
    ),
    "makes the first volume with another token each time": (
        "volume.py",
        '        return CreateFirst(f"{me.instance}-g1")\n',
        '        return CreateFirst(f"{me.instance}-g1-{id(world)}")\n',
        volume("test_first_volume_is_not_made_twice_by_its_own_maker"),
    ),
    "looks for tags before the registers are read again": (
        "executor.py",
        "            if tagged:  # a machine that began meanwhile writes its claim before it makes a volume\n",
        "            if False:\n",
        lives(0, 600),
    ),
    "ignores a foreign lease": (
        "volume.py",
        "    if lease is not None and lease.age <",
        "    if False and lease is not None and lease.age <",
        volume("test_a_forced_detach_from_a_live_machine_waits_for_its_lease"),
    ),
    "waits for ever for a lost machine": (
        "volume.py",
        "    if world.held_for < world.limits.release:\n",
        "    if world.elapsed < 10**9:\n",
        volume("test_a_volume_that_is_never_let_go_of_ends_with_75_and_the_remedy"),
    ),
    "mkfs with force": (
        "filesystem.py",
        '[f"mkfs.{kind}", "-q",',
        '[f"mkfs.{kind}", "-q", "-F",',
        case_of("test_filesystem", "test_no_flag_overrides_the_programs_doubts"),
    ),
    "takes no signature for blank": (
        "filesystem.py",
        "    return BLANK if _zeros(device) else UNKNOWN\n",
        "    return BLANK\n",
        with_folder("test_filesystem", "test_what_holds_something_is_never_blank", "a byte at the end"),
    ),
    "ignores the exit code of fsck": (
        "filesystem.py",
        ".code in (0, 1)\n",
        ".code >= 0\n",
        case_of("test_filesystem", "test_fsck_decides_by_its_code"),
    ),
    "ignores the exit code of mkfs": (
        "filesystem.py",
        '    if done.code != 0:\n        raise StopError(HUMAN, f"mkfs',
        '    if done.code < 0:\n        raise StopError(HUMAN, f"mkfs',
        with_folder("test_filesystem", "test_mkfs_that_refuses_is_for_a_person"),
    ),
    "guesses the only other EBS drive": (
        "device.py",
        "if number == serial and model == EBS_MODEL]",
        'if number != "vol0root" and model == EBS_MODEL]',
        with_folder("test_device", "test_the_only_empty_drive_is_not_guessed"),
    ),
    "takes an instance store": (
        "device.py",
        "if number == serial and model == EBS_MODEL]",
        "if number == serial]",
        with_folder("test_device", "test_an_instance_store_is_never_taken"),
    ),
    "ends the run whatever the exit code": (
        "finish.py",
        "    if code != 0:\n",
        "    if False:\n",
        with_folder("test_finish", "test_one_cell_of_the_matrix_ends_the_run", "complete", 75),
    ),
    "ends the run whatever its state": (
        "finish.py",
        '        if state is None or state.phase != "complete" or state.exit_code != 0:\n',
        "        if state is None:\n",
        with_folder("test_finish", "test_one_cell_of_the_matrix_ends_the_run", "interrupted", 0),
    ),
    "ends the run before its last checkpoint is home": (
        "finish.py",
        "        if two_tiers and not is_home(directory):\n",
        "        if False:\n",
        with_folder("test_finish", "test_the_last_checkpoint_must_be_home", (1, 8), False),
    ),
    "proves the volume by the machine's own drive": (
        "beacon.py",
        "        (on_volume, mark, ",
        "        (directories, mark, ",
        lambda load, folder: load(
            "test_beacon"
        ).test_a_checkpoint_on_the_machines_own_drive_proves_nothing_of_the_volume(
            load("test_beacon").make_run_dir(folder), folder
        ),
    ),
    "verifies the machine's own drive, not the copy": (
        "settings.py",
        "        if not self.nvme:\n",
        "        if True:\n",
        with_folder("test_filesystem", "test_verify_reads_the_volume_and_not_the_machines_own_drive"),
    ),
    "goes to S3 although the run has a volume": (
        "home.py",
        "    if book.generations or book.formatted:\n",
        "    if False:\n",
        case_of("test_home_in_s3", "test_a_run_with_a_volume_never_goes_to_s3"),
    ),
    "goes to another place in S3": (
        "home.py",
        "    if book.home and book.home != home:\n",
        "    if False:\n",
        case_of("test_home_in_s3", "test_home_is_said_once_and_for_all"),
    ),
    "makes a volume for a run in S3": (
        "volume.py",
        "    if world.book.home:\n",
        "    if False:\n",
        volume("test_a_run_in_s3_never_gets_a_volume"),
    ),
    "believes an older attempt": (
        "run_state.py",
        "        if state is not None and state.attempt == newest:\n",
        "        if state is not None:\n",
        with_folder("test_finish", "test_an_older_attempt_cannot_declare_the_run_complete"),
    ),
    "does not give up after ten tries": (
        "finish.py",
        "        if groups and not left:\n",
        "        if not left:\n",
        with_folder("test_finish", "test_a_run_without_groups_is_not_taken_for_ended"),
    ),
    "describes all volumes when it means one": (
        "aws.py",
        "describe_volumes(VolumeIds=[volume_id])",
        "describe_volumes(VolumeIds=[])",
        case_of("test_doubles_agree", "test_both_doubles_play_alike", "move"),
    ),
    "leaves the volume's type to AWS": (
        "aws.py",
        '            "VolumeType": "gp3",\n            "Iops": spec.iops,\n',
        "",
        case_of("test_doubles_agree", "test_the_real_calls_ask_for_gp3_and_its_figures"),
    ),
    "overwrites registers": (
        "aws.py",
        "Overwrite=False",
        "Overwrite=True",
        case_of("test_doubles_agree", "test_the_real_calls_create_a_register_once"),
    ),
    "reads one page of registers": (
        "aws.py",
        '        return _ask(lambda: {p["Name"]: p["Value"] for page in pages for p in page["Parameters"]})\n',
        "        first = next(iter(pages))\n"
        '        return _ask(lambda: {p["Name"]: p["Value"] for p in first["Parameters"]})\n',
        case_of("test_doubles_agree", "test_the_real_calls_read_more_registers_than_a_page_holds"),
    ),
    "restarts a stalled worker for ever": (
        "health.py",
        "        if before is None or now - before >= HOUR:\n",
        "        if True:\n",
        with_folder("test_health", "test_a_stall_restarts_and_a_second_one_within_the_hour_is_unhealthy"),
    ),
    "keeps every snapshot ahead of time": (
        "lead_snapshot.py",
        "    return [s.id for s in ours if s.started < complete]\n",
        "    return []\n",
        case_of("test_lead_snapshot", "test_a_day_leaves_two_and_not_one_each_hour"),
    ),
    "retains by the tag": (
        "lead_snapshot.py",
        "s.id in leads and LEAD_TAG in s.tags",
        "LEAD_TAG in s.tags",
        case_of("test_lead_snapshot", "test_what_the_list_does_not_name_or_another_service_made_stays"),
    ),
    "takes a backup of AWS for its own": (
        "cloud.py",
        '    return any(key.startswith("aws:") for key in tags)\n',
        "    return False\n",
        case_of(
            "test_gc", "test_backups_of_other_services_stay_although_they_have_our_tags", ["aws:backup:x"]
        ),
    ),
    "collects what only tags call its own": (
        "tidy.py",
        "        elif name not in book.made and name not in book.leads:\n",
        "        elif False:\n",
        case_of("test_gc", "test_what_the_registers_do_not_name_stays"),
    ),
    "does not write down what a move makes": (
        "executor.py",
        '        self._of_move(lambda: self._registers.mark_made(action.generation, "copy", name), "the registers")\n',
        "",
        volume("test_a_move_writes_down_what_it_makes"),
    ),
    "parks a machine that trains again": (
        "finish.py",
        "            while not (reason := why_not()) and clock.now() < until:\n",
        "            while clock.now() < until:\n",
        case_of("test_finish", "test_what_trains_again_or_leaves_is_not_parked", 900),
    ),
    "ends a training for a standby that is parked": (
        "finish.py",
        "            group = beside()\n",
        "            group = None\n",
        case_of("test_finish", "test_a_parked_standby_ends_no_training", (), ("began",), 1),
    ),
    "ends a run that up has just taken over": (
        "registers.py",
        "        return self.read().parked.get(instance) != UP\n",
        "        return True\n",
        case_of("test_finish", "test_a_parked_machine_that_up_replaces_ends_nothing"),
    ),
    "takes 0 for an end": (
        "finish.py",
        "    return HUMAN\n",
        "    return OK\n",
        with_folder("test_finish", "test_one_cell_of_the_matrix_ends_the_run", "running", 0),
    ),
    "buys machines without end": (
        "health.py",
        "    if row < IN_A_ROW * settings.nodes:\n",
        "    if True:\n",
        with_folder("test_health", "test_the_third_machine_in_a_row_that_hangs_is_parked"),
    ),
    "never forgets a machine that was given up": (
        "registers.py",
        '            row = [*row, word] if word.startswith("i-") else []\n',
        "            row = [*row, word]\n",
        with_folder("test_health", "test_machines_that_were_given_up_before_one_trained_do_not_count"),
    ),
    "ends with an exception on a disk that fails": (
        "executor.py",
        "        except OSError as error:",
        "        except ZeroDivisionError as error:",
        lambda load, _: load("test_volume").test_a_device_that_cannot_be_read_is_for_a_person(
            pytest.MonkeyPatch()
        ),
    ),
    "takes an evaluation for a stall": (
        "worker.py",
        'if "phase" in line or up - told > GAP:',
        "if up - told > GAP:",
        case_of("test_health", "test_what_need_not_move_does_not_count"),
    ),
}


@pytest.mark.parametrize("name", PLANTS)
def test_planted_bug_is_caught(name: str, tmp_path: Path) -> None:
    file, old, new, detector = PLANTS[name]
    folder = tmp_path / "package"
    work = tmp_path / "work"
    work.mkdir()
    with planted(folder, file, old, new) as load:
        try:
            detector(load, work)
        except (AssertionError, KeyError, IndexError, pytest.fail.Exception):
            return
        except Exception as error:
            # Classes of the copy are not those of this process: by name.
            assert type(error).__name__ in ("CloudError", "StopError", "OSError"), repr(error)
            return
    pytest.fail(f"nobody noticed: {name}")


def test_nothing_planted_nothing_caught(tmp_path: Path) -> None:
    with planted(tmp_path / "package", "volume.py", "def next_step(", "def next_step(") as load:
        volume("test_move_to_another_zone")(load, tmp_path)
        lives(0, 20)(load, tmp_path)
