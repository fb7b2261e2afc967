"""`callboard simulate`, with the project's scenarios and with one that has a planted failure."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import cbor2
import pytest

COMMAND = Path(sys.executable).with_name("callboard")
PLANTED = """
import os
import attrs
import callboard.simulations.scenarios.registry as registry
# A simulated run refuses them by the names that they have there.
real_open, real_rename, real_listdir = open, os.rename, os.listdir
from callboard.simulations.faults import FaultSpace
from callboard.simulations.violations import Violation

@attrs.frozen
class Load:
    messages: int = 40
    pause_s: float = 0.25
    name: str = "a planted failure"

class Planted:
    name = "planted"
    space = FaultSpace(weights={"JumpClock": 1.0}, faults=(2, 4), horizon_s=5.0, probes={})

    def workload(self, entropy):
        return Load(messages=30 + entropy.integer(4), pause_s=entropy.integer(4) / 16)

    async def main(self, world, load):
        import trio
        for number in range(load.messages):
            world.history.message(b"%d" % number)
            world.history.record(0, "publish", "p0", number, "orders", 0, ids=(number,), detail="all")
            world.sometimes("many messages", number > 20)
            await trio.sleep(load.pause_s)
        world.note(str(id(world)) if os.environ.get("PLANTED") == "escape" else "the end")
        if os.environ.get("PLANTED") == "fixed":
            await trio.sleep(100)
        elif os.environ.get("PLANTED") == "stale":
            return
        elif os.environ.get("PLANTED") == "silent":
            os._exit(3)
        elif os.environ.get("PLANTED") == "endless":
            real_open("pid.new", "w").write(str(os.getpid()))
            real_rename("pid.new", "pid")
            while "go on" not in real_listdir("."):
                pass
        elif os.environ.get("PLANTED") == "stuck":
            while True:
                pass
        elif os.environ.get("PLANTED") == "unmet":
            world.sometimes("pigs fly", False)
        elif os.environ.get("PLANTED") == "raises":
            raise KeyError("no such order")
        elif load.messages >= 7 and world.fault_counts["JumpClock"] and world.seed % 4 == 3:
            raise Violation("clocks are not believed", f"{load.messages} messages", world.history.entries[3])

registry.SCENARIOS["planted"] = Planted()
weights = registry.load_weights
def load_weights():
    found = weights()
    found.scenarios["planted"] = registry.Weight(share=1.0, cost_s=0.01, least=1)
    return found
registry.load_weights = load_weights

if os.environ.get("PLANTED") == "stuck":
    import callboard.cli.simulate.sweep as simulate_sweep
    simulate_sweep.STUCK_AFTER_S = 0.2
if os.environ.get("PLANTED") == "unmet":
    import callboard.simulations.search.coverage as coverage
    coverage.STANDARD_SEEDS = 4
    for name in [name for name in registry.SCENARIOS if name != "planted"]:
        del registry.SCENARIOS[name]
"""


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder in which seed 3 of the planted scenario was found and made small, and what that printed."""
    folder = tmp_path_factory.mktemp("stored")
    (folder / "sitecustomize.py").write_text(PLANTED, encoding="utf-8")
    done = subprocess.run(
        [COMMAND, "simulate", "planted", "--seeds=8", "--jobs=1"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder)},
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 6, done
    return folder / ".callboard-simulate" / "failures", done.stdout.decode()


@pytest.fixture
def planted(command: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The command line with one more scenario: every fourth seed of `planted` breaks a promise."""
    folder = command.folder / "planted"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(PLANTED, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return command


def done_in(state: Path) -> int:
    """How many seeds of the plain actors are done, by the stored state."""
    return sum(
        end - first for first, end in json.loads(state.read_text())["scenarios"]["plain-actors"]["done"]
    )


def test_scenarios_are_listed(command: Any) -> None:
    """By name, with their share of a sweep."""
    assert b"publish-and-recover" in command.run("simulate", "--list").out
    assert command.run("simulate", "--list", "--json").json["plain-actors"]["share"] > 0


def test_a_sweep_of_one_scenario_runs_its_seeds(command: Any) -> None:
    """All seeds end well; what was met is counted; exit code 0."""
    found = command.run("simulate", "plain-actors", "--seeds=6", "--jobs=2", "--json").json
    assert (found["seeds"], found["done"], found["complete"]) == (6, 6, True)
    assert found["scenarios"]["plain-actors"]["done"] == 6
    assert found["faults"]["CrashActor"] > 0
    assert found["failures"] == []


def test_a_broken_promise_is_stored_shrunk_and_told(stored: tuple[Path, str], planted: Any) -> None:
    """The story names who did what, the divergence, and one command, which reproduces it with exit code 6."""
    folder, story = stored
    assert "broken promise: clocks are not believed" in story
    assert "Workload: messages=30" in story
    assert ">>" in story
    assert (
        story.index("To see it again:") < story.index("seeds (") < story.index("points  1 of 1 point reached")
    ), "the failure comes first"
    assert "wall time jumps" in story.partition("What was made to fail:")[2].partition("What happened:")[0]
    stored_failure = json.loads((folder / "planted-3.json").read_text())
    assert len(stored_failure["plan"]["faults"]) == 1
    assert stored_failure["tape"] == []
    assert stored_failure["workload"] == {"messages": 30, "pause_s": 0.0, "name": "a planted failure"}
    names = {path.name.removeprefix("planted-3.") for path in folder.iterdir()}
    assert names == {"failure", "found.failure", "html", "json", "txt"}
    shutil.copytree(folder, planted.folder / ".callboard-simulate" / "failures")
    again = planted.shell(next(line.strip() for line in story.splitlines() if "--repro" in line))
    assert again.code == 6
    assert b"reproduced" in again.out


def test_no_bar_stays_above_a_story(planted: Any) -> None:
    """On a terminal: the failure, its story, then what was met; the bars have gone."""
    lines = planted.screen("simulate", "planted", "--seeds=8", "--jobs=1")
    head = "planted, seed 3: broken promise: clocks are not believed"
    assert lines[:3] == [f"{head}. Making it small.", head, "  30 messages"]
    assert "━" not in "".join(lines)
    assert lines.index("To see it again:") < lines.index("faults  1 of 1 kind hit, 13 times")


def test_with_keep_going_a_sweep_goes_on(planted: Any) -> None:
    """Every seed is run; of the same promise one failure is told."""
    arguments = ("simulate", "planted", "--seeds=12", "--jobs=1", "--keep-going", "--shrink-runs=3", "--json")
    found = planted.run(*arguments, code=6).json
    assert found["done"] == 9
    assert [failure["seed"] for failure in found["failures"]] == [3]
    assert found["points"]["many messages"] > 0


def test_a_stored_failure_that_is_fixed_can_be_adopted(
    stored: tuple[Path, str], planted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 0, and the regression holds what its run was like; while it fails, nothing is adopted."""
    stored_failure = str(stored[0] / "planted-3.json")
    planted.run("simulate", "--repro", stored_failure, "--adopt", "kept.json", code=6)
    assert not (planted.folder / "kept.json").exists()
    monkeypatch.setenv("PLANTED", "fixed")
    adopted = planted.run("simulate", "--repro", stored_failure, "--adopt", "kept.json")
    assert b"fixed" in adopted.out
    assert "adopted: kept.json" in adopted.err
    again = planted.run("simulate", "--repro", stored_failure, "--adopt", "kept.json", code=2).err
    assert "is there already" in again
    assert (
        "there is no folder"
        in planted.run("simulate", "--repro", stored_failure, "--adopt", "nowhere/kept.json", code=1).err
    )
    kept = json.loads((planted.folder / "kept.json").read_text())
    assert kept["promise"] == "clocks are not believed"
    assert kept["hits"] == [[0, 1]]
    assert b"fixed" in planted.run("simulate", "--repro", "kept.json").out


def test_a_stale_failure_is_loud(
    stored: tuple[Path, str], planted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 8 and its own message: faults without effect, a schedule, scenario or workload that does not fit.

    It says nothing about this version: it has no story and no report, and cannot be adopted.
    """
    data = json.loads((stored[0] / "planted-3.json").read_text())
    original = json.dumps(data)
    data["plan"]["faults"][0]["when"] = {"at": 1_000_000.0}
    changes: list[dict[str, Any]] = [
        {"plan": data["plan"]},
        {"tape": [[90, 91]]},
        {"scenario": "gone"},
        {"workload": {"colour": 1}},
    ]
    for number, change in enumerate(changes):
        path = planted.folder / f"stale-{number}.json"
        path.write_text(json.dumps(json.loads(original) | change))
        if number == 0:
            monkeypatch.setenv("PLANTED", "stale")
        options = ("--adopt=adopted.json", "--report=report.html")
        done = planted.run("simulate", "--repro", path.name, *options, code=8)
        assert "stale" in done.err, change
        assert "nothing was adopted" in done.err
        assert "broken promise" not in done.out.decode()
        assert not {"adopted.json", "report.html"} & {found.name for found in planted.folder.iterdir()}
        monkeypatch.delenv("PLANTED", raising=False)


@pytest.mark.parametrize("name", ["foreign", "missing.failure"])
def test_what_is_no_stored_failure_is_refused(command: Any, name: str) -> None:
    """Foreign files, and files that are not there: exit code 2."""
    (command.folder / "foreign").write_bytes(cbor2.dumps({"a": 1}))
    assert "InvalidArgument" in command.run("simulate", "--repro", name, code=2).err


def test_a_report_is_written_where_asked(stored: tuple[Path, str], planted: Any) -> None:
    """--report makes one HTML file of a stored failure."""
    file = str(stored[0] / "planted-3.failure")
    told = planted.run("simulate", "--repro", file, "--report", "out.html", code=6)
    assert "report: out.html" in told.err.splitlines()
    assert "clocks are not believed" in (planted.folder / "out.html").read_text()


def test_an_exception_is_told_with_where_it_was_raised(planted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that raises breaks the promise that it does not; the story ends with the traceback."""
    monkeypatch.setenv("PLANTED", "raises")
    failure = planted.run("simulate", "planted", "--seeds=1", "--jobs=1", "--json", code=6).json["failures"][
        0
    ]
    assert failure["promise"] == "raised: KeyError"
    assert "no such order" in failure["story"]
    assert "sitecustomize.py" in failure["story"]


def test_a_whole_sweep_that_never_met_a_point_fails(planted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 7, and the point is named; a smaller sweep, and one of named scenarios, only count."""
    monkeypatch.setenv("PLANTED", "unmet")
    assert "pigs fly" in planted.run("simulate", "--seeds=4", "--jobs=1", code=7).err
    assert planted.run("simulate", "--seeds=3", "--jobs=1", "--json").json["missing"] == ["pigs fly"]
    planted.run("simulate", "planted", "--seeds=4", "--jobs=1")


def test_a_worker_that_dies_is_a_failure_of_its_seed(planted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The seed under way is named, and the command that runs it alone."""
    monkeypatch.setenv("PLANTED", "silent")
    found = planted.run("simulate", "planted", "--seeds=2", "--jobs=1", "--json", code=6).json
    assert "status 3" in found["failures"][0]["words"]
    assert "--first-seed 0" in found["failures"][0]["command"]


def test_an_interrupted_sweep_goes_on_where_it_was(planted: Any) -> None:
    """Ctrl-C ends it with 130 and says how far it came; the next call goes on, and what is done is not done again."""
    arguments = ("simulate", "plain-actors", "--seeds=3000", "--jobs=1")
    sweep = planted.start(*arguments)
    state = planted.folder / ".callboard-simulate" / "sweep.json"
    while not (state.exists() and done_in(state)):
        with contextlib.suppress(subprocess.TimeoutExpired):
            sweep.process.wait(0.05)
    ended = sweep.end(signal.SIGINT)
    done = done_in(state)
    assert 0 < done < 3_000
    told = f"callboard: interrupted after {done:,} of 3,000 seeds: the same command continues there.\n"
    assert (ended.code, ended.out, ended.err) == (130, b"", told)
    found = planted.run(*arguments, "--time-limit=0.001", "--json").json
    assert found["resumed"] == f"resumed after {done:,} of 3,000 seeds"
    assert done <= found["done"] < 3_000
    assert not found["complete"]
    fresh = planted.run(*arguments, "--time-limit=0.001", "--fresh", "--json", code=11).json
    assert fresh["resumed"] == ""
    state.write_bytes(state.read_bytes()[:100])
    torn = planted.run(*arguments, "--time-limit=0.001", "--json", code=11).json
    assert "damaged" in torn["resumed"]


def test_a_sweep_whose_time_is_over_says_only_what_it_knows(
    planted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a seed that ended nothing is known, and a seed that does not end is a failure of that seed."""
    none = planted.run("simulate", "planted", "--seeds=2", "--jobs=1", "--time-limit=0.001", code=11)
    assert b"no promise was broken" not in none.out
    assert b"nothing is known" in none.out
    monkeypatch.setenv("PLANTED", "stuck")
    stuck = planted.run(
        "simulate", "planted", "--seeds=2", "--jobs=1", "--time-limit=3", "--json", code=6
    ).json
    assert [(found["promise"], found["seed"]) for found in stuck["failures"]] == [("the run ends", 0)]


@pytest.mark.parametrize("option", ["--time-limit", "--shrink-seconds"])
def test_a_time_that_is_no_number_is_refused(command: Any, option: str) -> None:
    """NaN passes every range, and would end the sweep with a traceback: it is refused like other nonsense."""
    command.run("simulate", "publish-and-recover", "--seeds=1", f"{option}=nan", code=2)


def test_runs_of_one_seed_are_compared_line_by_line(command: Any) -> None:
    """Two processes, other hashes, other heaps: the same bytes; exit code 0."""
    found = command.run(
        "simulate", "plain-actors", "--check-determinism", "--seeds=2", "--jobs=2", "--json"
    ).json
    assert [one["same"] for one in found] == [True, True]
    assert min(one["lines"] for one in found) > 100


def test_the_first_line_that_differs_is_shown(planted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 9, both versions of the line, and what came before."""
    monkeypatch.setenv("PLANTED", "escape")
    done = planted.run("simulate", "planted", "--check-determinism", code=9)
    text = done.out.decode()
    assert "NOT THE SAME" in text
    assert " A  " in text
    assert " B  " in text
    assert "publish p0" in text


def test_machines_are_swept_too(command: Any) -> None:
    """The pure machines count events."""
    found = command.run("simulate", "--machines", "--seeds=3", "--jobs=1", "--json").json
    assert found["done"] == 3
    assert found["scenarios"]["machines"]["events"] > 1_000


def test_short_histories_are_explored(command: Any) -> None:
    """Every history of one operation, by two processes."""
    found = command.run("simulate", "--exhaustive=1", "--jobs=2", "--json").json
    assert found["failures"] == []
    assert found["states"] > 100


def test_more_processes_than_histories_share_what_there_is(command: Any) -> None:
    """One of three processes has the only history; the others, with nothing to do, are in nobody's way."""
    found = command.run("simulate", "--exhaustive=0", "--jobs=3", "--json").json
    assert found["sequences"] == 1
    assert found["failures"] == []


def test_a_safeguard_is_missed(command: Any) -> None:
    """Switched off, a seed notices; with which promise is told."""
    (proof,) = command.run("simulate", "--prove=lease check", "--jobs=1", "--json").json
    assert proof["caught"]
    assert proof["promise"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("nobody",),
        ("--prove=nothing",),
        ("--machines", "plain-actors"),
        ("--machines", "--check-determinism"),
        ("--report", "x.html", "--list"),
        ("--adopt", "x.json"),
        ("--seeds=0",),
        ("--jobs=0",),
        ("--check-determinism", "nobody"),
        ("--state=",),
    ],
)
def test_what_makes_no_sense_is_refused(command: Any, arguments: tuple[str, ...]) -> None:
    """Exit code 2 and a message; nothing is run, nothing is written."""
    command.run("simulate", *arguments, code=2)
    assert not list(command.folder.iterdir())


def test_a_failure_that_cannot_be_stored_is_told(planted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder in the place of the file: one message of what cannot be written, no traceback."""
    monkeypatch.setenv("PLANTED", "raises")
    (planted.folder / ".callboard-simulate/failures/planted-0.found.failure").mkdir(parents=True)
    assert "cannot be written" in planted.run("simulate", "planted", "--seeds=1", "--jobs=1", code=1).err


def test_a_state_folder_that_cannot_be_is_told(command: Any) -> None:
    """A file in the place of the folder: one message, no traceback."""
    (command.folder / "taken").write_text("")
    done = command.run("simulate", "plain-actors", "--seeds=1", "--state=taken/below", code=1)
    assert "--state" in done.err


@pytest.mark.parametrize("kind", ["a folder", "a pipe", "a device", "no folder", "nothing"])
def test_a_report_only_replaces_plain_files(stored: tuple[Path, str], planted: Any, kind: str) -> None:
    """What is no plain file is refused before anything is run, and is still there; nothing is left beside it."""
    place = planted.folder / "place"
    if kind == "a folder":
        place.mkdir()
    elif kind == "a pipe":
        os.mkfifo(place)
    elif kind == "a device":
        place.symlink_to("/dev/null")
    named = {"no folder": "gone/report.html", "nothing": ""}.get(kind, "place")
    before = sorted(planted.folder.iterdir())
    stored_failure = str(stored[0] / "planted-3.failure")
    done = planted.run("simulate", "--repro", stored_failure, "--report", named, code=1)
    assert "StorageError" in done.err
    assert "ame another place" in done.err
    planted.run("simulate", "planted", "--seeds=8", "--jobs=1", "--report", named, code=1)
    assert sorted(planted.folder.iterdir()) == before
    assert not place.is_file()


def test_a_report_goes_through_a_link(stored: tuple[Path, str], planted: Any) -> None:
    """The file that the link leads to is replaced, not the link."""
    (planted.folder / "link.html").symlink_to("report.html")
    stored_failure = str(stored[0] / "planted-3.failure")
    planted.run("simulate", "--repro", stored_failure, "--report", "link.html", code=6)
    assert (planted.folder / "link.html").is_symlink()
    assert "clocks are not believed" in (planted.folder / "report.html").read_text()


def test_a_trace_that_cannot_be_written_is_told(command: Any) -> None:
    """A full device in the place of the trace: one message, no traceback."""
    traces = command.folder / ".callboard-simulate/traces"
    traces.mkdir(parents=True)
    (traces / "plain-actors-0.a.txt").symlink_to("/dev/full")
    done = command.run("simulate", "plain-actors", "--check-determinism", "--jobs=1", code=1)
    assert "No space left" in done.err


def test_a_stored_failure_with_a_number_beyond_all_floats_is_stale(
    stored: tuple[Path, str], planted: Any
) -> None:
    """An integer that no float can hold, where a float is wanted: one message, no traceback."""
    kept = json.loads((stored[0] / "planted-3.json").read_text())
    kept["workload"]["pause_s"] = 10**400
    (planted.folder / "huge.json").write_text(json.dumps(kept))
    assert "not a finite number" in planted.run("simulate", "--repro", "huge.json", code=8).out.decode()


@pytest.fixture
def endless(planted: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, int]:
    """A sweep whose first seed goes on until there is a file "go on", and the process that runs it."""
    monkeypatch.setenv("PLANTED", "endless")
    sweep = planted.start("simulate", "planted", "--seeds=1", "--jobs=1", "--json")
    pid = planted.folder / "pid"
    while not pid.exists():
        with contextlib.suppress(subprocess.TimeoutExpired):
            sweep.process.wait(0.05)
            pytest.fail("it ended")
    return sweep, int(pid.read_text())


def test_a_sweep_begun_afresh_goes_on_without_that(planted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Repeated as it was typed it would begin anew once more: that is said, also beside JSON and for SIGTERM."""
    monkeypatch.setenv("PLANTED", "endless")
    sweep = planted.start("simulate", "planted", "--seeds=2", "--jobs=1", "--json", "--fresh")
    state = planted.folder / ".callboard-simulate/sweep.json"
    while not state.exists():
        with contextlib.suppress(subprocess.TimeoutExpired):
            sweep.process.wait(0.05)
            pytest.fail("it ended")
    done = sweep.end(signal.SIGTERM)
    told = "callboard: interrupted after 0 of 2 seeds: the same command without --fresh continues there.\n"
    assert (done.code, done.out, done.err) == (143, b"", told)


def test_a_worker_ends_with_the_command_that_is_killed(endless: tuple[Any, int]) -> None:
    """Even in the midst of a run that never ends: no process is left that nobody waits for."""
    sweep, worker = endless
    sweep.process.kill()
    assert sweep.process.stdout is not None
    assert sweep.process.stdout.read() == b""
    with pytest.raises(ProcessLookupError):
        for _ in range(600):
            os.kill(worker, 0)
            with contextlib.suppress(subprocess.TimeoutExpired):
                subprocess.run(["sleep", "infinity"], timeout=0.05, check=False)


def test_ctrl_c_is_for_the_command_not_for_its_workers(endless: tuple[Any, int], planted: Any) -> None:
    """A terminal sends it to both; a worker that took it would report a failure of the seed that it runs."""
    sweep, worker = endless
    os.kill(worker, signal.SIGINT)
    (planted.folder / "go on").write_text("")
    done = sweep.end()
    assert done.code == 0
    assert json.loads(done.out)["done"] == 1
