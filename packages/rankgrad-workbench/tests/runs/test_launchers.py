"""Runs on other machines: the words of a launcher, what stands between it and a run, and the engines themselves."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from small_runs import make_photos, same_results, small, train

from rankgrad_workbench.cli import main
from rankgrad_workbench.files.folders import lock
from rankgrad_workbench.runs import children as children_module
from rankgrad_workbench.runs import launchers, signals
from rankgrad_workbench.runs.children import Child, Children
from rankgrad_workbench.runs.compare import compare, with_threads
from rankgrad_workbench.runs.folder import Run
from rankgrad_workbench.runs.launchers import LOCAL, Job, RunCommand, read_launcher
from rankgrad_workbench.runs.signals import Stopped
from rankgrad_workbench.settings import ConfigError
from rankgrad_workbench.tuning import tune as tune_module

# -------------------------------------------------------------------------------------------------------- the words


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """In the place of submitit: the options that it is made with."""
    made: list[dict[str, Any]] = []
    make = launchers._make

    def fake(name: str, options: dict[str, Any]) -> Any:
        if name != "submitit":
            return make(name, options)
        made.append(options)
        return Elsewhere()

    monkeypatch.setattr(launchers, "_make", fake)
    return made


class Elsewhere:
    """A launcher that trains nothing: a run ends at once, with its number as its values."""

    shares_cores = False

    def __init__(self) -> None:
        self.runs: list[RunCommand] = []

    def start(self, run: RunCommand, children: Children) -> Child:
        self.runs.append(run)
        (run.folder / "facts.json").write_text(json.dumps({"steps": 1, "train_seconds": 1.0}))
        values = {name: 0.5 + len(self.runs) / 100 for name in ("R@1", "mAP@R", "AP")}
        (run.folder / "after.json").write_text(json.dumps({"values": values}))
        return children.add(Done(0))


class Done:
    def __init__(self, code: int) -> None:
        self.returncode = code

    def poll(self) -> int:
        return self.returncode

    wait = poll

    def terminate(self) -> None:
        raise AssertionError

    kill = terminate


def test_the_words_of_a_launcher_are_taken_out_and_their_values_read(engine):
    words = ["loss=pnp", "launcher.timeout_min=60", "launcher=submitit", "launcher.slurm_setup=[module load cuda,x]"]
    launcher, rest = read_launcher([*words, "launcher.mem_gb=1.5", "launcher.slurm_partition=gpu", "seeds=0"])
    assert rest == ["loss=pnp", "seeds=0"] and not launcher.shares_cores
    options = {"timeout_min": 60, "slurm_setup": ["module load cuda", "x"], "mem_gb": 1.5, "slurm_partition": "gpu"}
    assert engine == [options]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["launcher=slurm"], "launcher must be 'local', 'submitit' or 'ray'; got 'slurm'"),
        (["launcher.num_cpus=2"], "launcher.num_cpus= needs launcher=submitit or launcher=ray"),
        (["launcher=submitit", "launcher.setup=[a"], "launcher: while parsing"),
    ],
)
def test_words_that_do_not_fit_are_one_line(engine, words, told):
    with pytest.raises(ConfigError, match=told) as error:
        read_launcher(words)
    assert "\n" not in str(error.value) and engine == []


@pytest.mark.parametrize("name", ["submitit", "ray"])
def test_an_engine_that_is_not_installed_is_named_with_its_extra(monkeypatch, capsys, tmp_path, name):
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, f"rankgrad_workbench.runs.launchers.{name}", raising=False)
    assert main(["compare", "loss=pnp", f"launcher={name}", "-o", str(tmp_path / "out")]) == 2
    assert f"this needs {name}, which the extra '{name}' installs: pip install " in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_folder_of_runs_begun_here_goes_on_elsewhere_and_the_launcher_is_not_in_it(tmp_path, engine, monkeypatch):
    elsewhere = Elsewhere()
    monkeypatch.setattr(launchers, "_make", lambda name, options: elsewhere if name == "submitit" else Here(elsewhere))
    settings = ["loss=supap,pnp", "data=glyphs", "recipe=small"]
    compare([*settings, "seeds=0"], tmp_path, jobs=2)
    text = compare([*settings, "seeds=0,1", "launcher=submitit", "launcher.timeout_min=9"], tmp_path)
    assert [run.folder.name for run in elsewhere.runs] == [f"{loss}-seed{seed}" for seed in (0, 1) for loss in NAMES]
    local, remote = elsewhere.runs[0].settings, elsewhere.runs[2].settings
    assert [word for word in local if word not in remote] == [f"threads={max((os.cpu_count() or 1) // 2, 1)}", "seed=0"]
    assert "launcher" not in text and "launcher" not in "".join(path.read_text() for path in tmp_path.glob("*.*"))


NAMES = ("supap", "pnp")


class Here:
    """The same as if it were on this machine."""

    shares_cores = True

    def __init__(self, elsewhere: Elsewhere) -> None:
        self.start = elsewhere.start


def without(elsewhere: Elsewhere) -> Callable[[list[str]], tuple[Elsewhere, list[str]]]:
    """`read_launcher` that gives this one."""
    return lambda words: (elsewhere, [word for word in words if "launcher" not in word])


def test_a_search_hands_its_trials_and_its_comparison_to_the_launcher(tmp_path, monkeypatch):
    elsewhere = Elsewhere()
    monkeypatch.setattr(tune_module, "read_launcher", without(elsewhere))
    words = ["loss=supap", "data=glyphs", "recipe=small", "trials=1", "folds=2", "seeds=0", "launcher=submitit"]
    outcome = tune_module.tune(words, tmp_path)
    places = [run.folder.relative_to(tmp_path).parts[0] for run in elsewhere.runs]
    assert places == ["trials", "trials", "final"] and "launcher" not in outcome.text()


def test_a_run_elsewhere_has_the_cores_that_it_is_given_there():
    assert with_threads(["loss=pnp"], 3, Elsewhere()) == ["loss=pnp"]
    assert with_threads(["loss=pnp"], 1, LOCAL) == ["loss=pnp", f"threads={os.cpu_count()}"]


# --------------------------------------------------------------------------------------------- a run, wherever it is

ECHO = "import os, sys\nprint(os.getcwd(), *sys.argv[1:])\nsys.exit(int(sys.argv[-1]))"
SAVES = """
import signal, sys, time
from pathlib import Path
def end(*_):
    Path("saved").write_text("")
    sys.exit(143)
signal.signal(signal.SIGTERM, end)
Path("began").write_text("")
time.sleep(60)
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., RunCommand]:
    """A run whose command is this program."""

    def make(program: str, *settings: str) -> RunCommand:
        path = tmp_path / "program.py"
        path.write_text(program)
        monkeypatch.setattr(children_module, "COMMAND", (sys.executable, str(path)))
        (tmp_path / "runs" / "one").mkdir(parents=True, exist_ok=True)
        return RunCommand(Path("runs/one"), settings, home=tmp_path)

    return make


def test_a_run_begins_or_goes_on_by_what_its_folder_holds(run):
    one = run(ECHO, "loss=pnp", "trust=mine", "seed=3", "threads=2")
    assert one.words() == ["train", "loss=pnp", "trust=mine", "seed=3", "threads=2", "out=runs/one"]
    Run(one.home / one.folder).config.write_text("")
    assert one.words() == ["train", "resume=runs/one", "trust=mine", "threads=2"]
    assert RunCommand(one.folder, (), "detect train", one.home).words() == [
        "detect",
        "train",
        "resume=runs/one",
    ]


def test_a_run_works_in_the_folder_that_its_paths_are_meant_from(run, monkeypatch):
    one = run(ECHO.replace("-1", "-2"), "data.root=photos", "3")
    monkeypatch.chdir("/")
    assert one.here() == 3
    assert one.log.read_text() == f"{one.home} train data.root=photos 3 out=runs/one\n"
    assert one.last_words(3).endswith("out=runs/one (exit 3; see runs/one/log.txt)")


def test_a_folder_that_another_machine_does_not_have_is_said_in_one_line(run):
    one = run(ECHO)
    Path(one.home, one.folder).rmdir()
    told = one.here()
    assert isinstance(told, str) and f"has no {one.home / one.folder}: the folder of the runs (--out)" in told
    assert "must be on a file system that all machines share" in told


def test_a_run_waits_until_the_process_that_had_it_has_ended(run, monkeypatch):
    one = run("import time; print(time.monotonic())")
    held, until = threading.Event(), []

    def hold() -> None:
        with lock(one.home / one.folder, "this run"):
            held.set()
            time.sleep(0.5)
            until.append(time.monotonic())

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    assert one.here() == 0 and float(one.log.read_text()) > until[0]
    thread.join()
    monkeypatch.setattr(launchers, "LEASE", 0.1)
    with lock(one.home / one.folder, "this run"):
        told = one.here()
    assert isinstance(told, str) and f"this run is in use: {one.home / one.folder} is locked by process" in told


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_asked_to_end_saves_its_state_first(run, number):
    one = run(SAVES)

    def ask() -> None:
        while not (one.home / "began").exists():
            time.sleep(0.05)
        os.kill(os.getpid(), number)

    threading.Thread(target=ask).start()
    with pytest.raises(Stopped) as stopped:
        one.here()
    assert stopped.value.number == number and (one.home / "saved").exists()


class Scripted(Job):
    """A job whose outcomes are given."""

    def __init__(self, run: RunCommand, *outcomes: int | str | None) -> None:
        self.outcomes, self.cancelled = list(outcomes), 0
        super().__init__(run, self.scripted, self.count, lambda: None)

    def scripted(self, asked: bool) -> int | str | None:
        return self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]

    def count(self) -> None:
        self.cancelled += 1


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunCommand:
    monkeypatch.setattr(launchers, "EVERY", 0.0)
    return RunCommand(tmp_path, ())


def test_a_job_ends_when_its_result_can_be_seen_here(folder):
    job = Scripted(folder, None, 0)
    assert [job.poll() for _ in range(4)] == [None] * 4
    Run(folder.folder).after.write_text("{}")
    assert job.poll() == 0 and job.wait() == 0 and not folder.log.exists()


def test_a_result_that_is_never_seen_here_is_an_error(folder, monkeypatch):
    monkeypatch.setattr(signals, "GRACE", 0.2)
    assert Scripted(folder, 0).wait() == 1
    assert "the run has finished, but" in folder.last_words(1) and "that all machines share" in folder.last_words(1)


def test_what_an_engine_says_is_the_last_word_of_a_run_unless_we_asked_for_its_end(folder):
    job = Scripted(folder, "NODE_FAIL")
    assert job.wait() == 1 and folder.last_words(1).startswith("rankgrad: NODE_FAIL (exit 1; see ")
    stopped = Scripted(folder, "CANCELLED")
    stopped.terminate()
    assert stopped.wait() == 143 and stopped.cancelled == 1 and "CANCELLED" not in folder.log.read_text()
    assert Scripted(folder, 2).wait() == 2


def test_a_job_is_not_asked_for_news_all_the_time(folder, monkeypatch):
    monkeypatch.setattr(launchers, "EVERY", 60.0)
    job = Scripted(folder, None, 3)
    assert [job.poll() for _ in range(3)] == [None] * 3 and len(job.outcomes) == 1
    job.terminate()
    assert job.poll() == 3


# --------------------------------------------------------------------------------------------------------- submitit


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Commands of SLURM that note what they were called with, in the file that is given back."""
    calls, place = tmp_path / "calls", tmp_path / "bin"
    place.mkdir()
    says = {
        "sbatch": "echo Submitted batch job 12",
        "scancel": "",
        "srun": "",
        "squeue": "",
        "sacct": "echo JobID'|'State",
    }
    for name, text in says.items():
        (place / name).write_text(f'#!/bin/sh\necho {name} "$@" >> {calls}\n{text}\n')
        (place / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(place), prepend=os.pathsep)
    return calls


def test_a_job_of_slurm_has_the_parameters_that_were_given_and_is_asked_before_it_is_ended(slurm, run):
    words = ["timeout_min=90", "cpus_per_task=4", "slurm_partition=gpu", "slurm_additional_parameters.licenses=a"]
    launcher, _ = read_launcher(["launcher=submitit", *(f"launcher.{word}" for word in words)])
    one = run(ECHO, "loss=pnp")
    one = RunCommand(one.home / one.folder, one.settings)
    planted = one.folder / "submitit" / "12_0_result.pkl"
    planted.parent.mkdir()
    planted.write_bytes(b"")
    children = Children()
    job = launcher.start(one, children)
    assert not planted.exists()
    script = (one.folder / "submitit" / "12_submission.sh").read_text()
    for line in ("time=90", "cpus-per-task=4", "partition=gpu", "licenses=a", "job-name=rankgrad"):
        assert f"#SBATCH --{line}\n" in script
    assert job.poll() is None and not launcher.shares_cores
    job.terminate()
    asked = [line for line in slurm.read_text().splitlines() if line.startswith("scancel")]
    assert asked == ["scancel --state=PENDING 12", "scancel --state=RUNNING --signal=INT 12"]


def test_a_job_that_does_not_end_is_cancelled_and_not_waited_for(slurm, run, monkeypatch):
    monkeypatch.setattr(signals, "GRACE", 0.2)
    (slurm.parent / "bin" / "squeue").write_text("#!/bin/sh\necho 12 R\n")
    launcher, _ = read_launcher(["launcher=submitit"])
    one = run(ECHO)
    with Children() as children:
        job = launcher.start(RunCommand(one.home / one.folder, ()), children)
    assert job.wait() == -signal.SIGKILL and slurm.read_text().splitlines()[-1] == "scancel 12"


def test_a_run_saves_its_state_before_its_job_is_queued_again(run):
    from rankgrad_workbench.runs.launchers.submitit import Resumed

    job = Resumed(run(SAVES))
    again = []

    def queue_again() -> None:
        while not (job.run.home / "began").exists():
            time.sleep(0.05)
        [process] = job.children.running()
        process.send_signal(signal.SIGUSR2)  # as SLURM does, to all processes of a job
        time.sleep(0.3)
        again.append((job.checkpoint(), (job.run.home / "saved").exists()))

    thread = threading.Thread(target=queue_again)
    thread.start()
    assert job() == 143
    thread.join()
    [(submission, saved)] = again
    assert saved and pickle.loads(pickle.dumps(submission)).function.run == job.run


def test_what_slurm_refuses_is_one_line(slurm, run, tmp_path):
    (tmp_path / "bin" / "sbatch").write_text("#!/bin/sh\necho sbatch: error: invalid partition >&2\nexit 1\n")
    launcher, _ = read_launcher(["launcher=submitit"])
    one = run(ECHO)
    with pytest.raises(ConfigError, match=r"submitit: .*invalid partition") as error:
        launcher.start(RunCommand(one.home / one.folder, ()), Children())
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("launcher.slurm_partitoin=gpu", "launcher=submitit: Unknown argument 'partitoin' for executor 'slurm'"),
        ("launcher.timeout_min=long", 'launcher=submitit: Parameter "timeout_min" expected type'),
        ("launcher.cluster=pbs", "launcher=submitit: AutoExecutor doesn't know any executor named pbs"),
    ],
)
def test_options_that_submitit_refuses_are_said_in_its_words(word, told):
    with pytest.raises(ConfigError, match=told):
        read_launcher(["launcher=submitit", word])


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_photos(tmp_path_factory.mktemp("photos"))


def test_options_that_ray_refuses_are_said_in_its_words():
    for word, told in (("nonsense=1", "nonsense"), ("num_cpus=-1", "num_cpus")):
        with pytest.raises(ConfigError, match=f"launcher=ray: .*{told}") as error:
            read_launcher(["launcher=ray", f"launcher.{word}"])
        assert "\n" not in str(error.value)


# ------------------------------------------------------------------------------------------------- whole comparisons

# Long enough to be cut off in the middle, with a state after every step.
LONG = ("trainer.max_epochs=1", "sampler.batches_per_epoch=60", "checkpoint_minutes=0")


def wait_for(condition: Callable[[], object], seconds: float = 900.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


def states(out: Path) -> list[Path]:
    return [*out.glob("*/state.ckpt")]


def is_stopped_and_goes_on(photos: Path, place: Path, *launcher: str) -> None:
    """Stop a comparison by Ctrl-C, and go on without the launcher."""
    words = ["compare", "loss=pnp,roadmap", "seeds=0", *small(photos, *LONG), "-j", "2", "-o", str(place / "cut")]
    with (place / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "rankgrad", *words, *launcher], stderr=log, stdout=log, start_new_session=True
        )
    try:
        wait_for(lambda: len(states(place / "cut")) == 2 or process.poll() is not None)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: what the engine has started here gets it, too
        assert process.wait(900) == 130, (place / "log").read_text()
    finally:
        process.kill()
        process.wait()
    runs = [Run(path.parent) for path in states(place / "cut")]
    logs = [(run.folder / "log.txt").read_text() for run in runs]
    assert all("stopped; continue with: rankgrad train resume=" in text for text in logs)  # before the command ended
    assert "stopping; 2 of the runs save their state" in (place / "log").read_text()
    assert len(runs) == 2 and all(run.interrupted for run in runs)
    assert main(words) == 0
    here = train(*small(photos, *LONG), "loss=pnp", "seed=0", f"out={place / 'whole'}")
    assert same_results(place / "cut" / "pnp-seed0", here.folder)


@pytest.mark.slow
def test_a_comparison_by_submitit_is_that_of_this_machine(photos, tmp_path):
    words = ["compare", "loss=pnp,roadmap", "seeds=0", *small(photos)]
    assert main([*words, "-j", "2", "-o", str(tmp_path / "jobs"), "launcher=submitit", "launcher.cluster=local"]) == 0
    for loss in ("pnp", "roadmap"):
        here = train(*small(photos), f"loss={loss}", "seed=0", f"out={tmp_path / loss}")
        assert same_results(tmp_path / "jobs" / f"{loss}-seed0", here.folder)
        assert not (tmp_path / "jobs" / f"{loss}-seed0" / "submitit").exists()


@pytest.mark.slow
def test_a_comparison_by_submitit_that_is_stopped_goes_on_here(photos, tmp_path):
    is_stopped_and_goes_on(photos, tmp_path, "launcher=submitit", "launcher.cluster=local")


@pytest.mark.slow
def test_a_run_that_reaches_its_time_limit_is_queued_again_and_goes_on(photos, tmp_path):
    out = tmp_path / "jobs"

    def take_away() -> None:
        wait_for(lambda: states(out))
        [controller] = [p for p in psutil.Process().children() if "submitit.local._local" in p.cmdline()]
        [job] = controller.children()
        job.send_signal(signal.SIGUSR2)  # what SLURM sends before the end, and what submitit's own one does

    thread = threading.Thread(target=take_away)
    thread.start()
    words = ["compare", "loss=pnp", "seeds=0", *small(photos, *LONG), "-o", str(out)]
    assert main([*words, "launcher=submitit", "launcher.cluster=local"]) == 0
    thread.join()
    assert (out / "pnp-seed0" / "log.txt").read_text().count("continue with: rankgrad train resume=") == 1
    here = train(*small(photos, *LONG), "loss=pnp", "seed=0", f"out={tmp_path / 'whole'}")
    assert same_results(out / "pnp-seed0", here.folder)


@pytest.mark.slow
def test_a_training_inside_a_job_of_slurm_is_one_of_its_own(photos, tmp_path, monkeypatch):
    place = {"JOB_ID": "1", "JOB_NAME": "a", "NTASKS": "2", "NTASKS_PER_NODE": "2", "PROCID": "1", "LOCALID": "1"}
    for name, value in {**place, "NODEID": "0", "NNODES": "1"}.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    inside = train(*small(photos), "loss=pnp", f"out={tmp_path / 'inside'}")
    for name in list(os.environ):
        if name.startswith("SLURM_"):
            monkeypatch.delenv(name)
    assert same_results(inside.folder, train(*small(photos), "loss=pnp", f"out={tmp_path / 'outside'}").folder)


@pytest.fixture
def two_nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A Ray cluster of two nodes on this machine, each with room for one run; the second one may be removed."""
    for name, value in (("USAGE_STATS_ENABLED", "0"), ("raylet_start_wait_time_s", "300"), ("worker_niceness", "0")):
        monkeypatch.setenv(f"RAY_{name}", value)
    import ray
    from ray.cluster_utils import Cluster

    memory = {"object_store_memory": 80 * 2**20}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False, **memory})
    try:
        cluster.add_node(num_cpus=1, **memory)
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # files and sockets that Ray leaves open
def test_when_a_node_of_a_ray_cluster_dies_its_run_goes_on_on_another(photos, tmp_path, two_nodes):
    out = tmp_path / "cluster"

    def kill_a_node() -> None:
        wait_for(lambda: len(states(out)) == 2)
        [other] = [node for node in two_nodes.list_all_nodes() if node is not two_nodes.head_node]
        two_nodes.remove_node(other, allow_graceful=False)

    thread = threading.Thread(target=kill_a_node)
    thread.start()
    words = ["compare", "loss=pnp,roadmap", "seeds=0", *small(photos, *LONG), "-j", "2", "-o", str(out)]
    assert main([*words, "launcher=ray", f"launcher.address={two_nodes.address}"]) == 0
    thread.join()
    logs = [(out / f"{loss}-seed0" / "log.txt").read_text() for loss in ("pnp", "roadmap")]
    assert sum(text.count("50 images, 10 classes") for text in logs) == 3  # one of them has begun twice
    for loss in ("pnp", "roadmap"):
        here = train(*small(photos, *LONG), f"loss={loss}", "seed=0", f"out={tmp_path / loss}")
        assert same_results(out / f"{loss}-seed0", here.folder)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # as above
def test_a_comparison_by_ray_that_is_stopped_goes_on_here(photos, tmp_path, two_nodes):
    is_stopped_and_goes_on(photos, tmp_path, "launcher=ray", f"launcher.address={two_nodes.address}")
