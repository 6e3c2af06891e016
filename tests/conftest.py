"""Fixtures that start real commands in real processes, and check that no process outlives them."""

import copy
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

os.environ["OMP_WAIT_POLICY"] = "PASSIVE"  # read as torch is loaded: threads that wait leave the cores to other tests
os.environ["OMP_NUM_THREADS"] = "1"  # of a rank that is told no number: two on a busy core wait for each other

import psutil
import pytest

from lockstep.base.config_error import ConfigError
from lockstep.command.build import plan_from
from lockstep.command.compose import compose_job
from lockstep.plan.plan import Plan
from lockstep.plan.schemas.run import ENGINES, EVERY_RUN
from lockstep.runs.checkpoint.files import choose_checkpoint
from tests.composition import remembered
from tests.zygote import MARK, Forked, one_forkserver, zygote

if TYPE_CHECKING:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

GPUS = os.environ.setdefault("LOCKSTEP_TEST_GPUS", os.environ.get("CUDA_VISIBLE_DEVICES", "0"))  # for xdist's workers
os.environ["CUDA_VISIBLE_DEVICES"] = ""  # all but test_gpu.py is of CPUs, and gives each its devices
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # hundreds of commands would each compile the same sources
sys.dont_write_bytecode = False

ROOT = Path(__file__).parents[1]
USER_CODE = ROOT / "tests" / "user_code"
QUIET = ("logger=none", "threads=1", "max_epochs=2")
MakePlan = Callable[..., Plan]
"""From overrides."""
MakeUserPlan = Callable[..., Plan]
"""From overrides and the name of a folder."""
MNIST_ROOT = Path(os.environ.get("LOCKSTEP_MNIST", ROOT.parent / "shared" / "data"))
RANK_ENGINES = (
    *(*ENGINES.values(), *EVERY_RUN, "lockstep.collectives.tour", "bench.baselines", "bench.traffic"),
    *("tests.rank_helpers", "tests.fault_injection.faulty_engine", "tests.fault_injection.engine_lightning"),
)
"""All that tests have on the ranks of this process: for one more its fork server would be started anew, in seconds."""
IN_PROCESS = [
    pytest.mark.usefixtures("process_as_it_was"),
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning"),
]
"""Marks of tests that run engines in this process."""
STARTED_BY = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "HYDRA_FULL_ERROR", "COLUMNS", "LINES")

for _number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):  # ignored if the tests were started in the background
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.SIG_DFL)

WORKERS = 3
"""Processes that share a full run: one more than cores, since some wait for commands."""

LONGEST = (
    *("course", "strategies_table", "silent_bugs", "checkpoint_shards", "parity_matrix", "docs", "netns", "clusters"),
    *("resume", "check", "strategies_tensor_parallel", "signals", "strategies_modules", "checkpoint_shards_stopped"),
    *("user_module", "bench", "fuzz", "wheel", "compile", "parallel_divided_optimizer", "sweep", "in_process"),
    *("strategies_virtual", "faults", "user_code", "paths", "train", "raw", "both", "module_resume"),
    *("strategies_fsdp", "strategies_zero1", "strategies_pipeline", "site", "callbacks"),
    *("trainer_keys_modules", "trainer_keys", "user_steps", "results", "metric_values", "bad_input", "disk_full"),
)
"""The files that take longest start first."""


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Share a full run, by files, if pytest-xdist is installed; named tests run in one process.

    A worker comes here, too: it must start no workers.
    """
    options, worker = config.option, hasattr(config, "workerinput") or "PYTEST_XDIST_WORKER" in os.environ
    named = [argument for argument in config.args if Path(argument).resolve() != ROOT / "tests"]
    if worker or named or not config.pluginmanager.hasplugin("xdist"):
        return
    if options.numprocesses is None and not options.usepdb and not options.collectonly:
        options.numprocesses, options.dist = min(WORKERS, (os.cpu_count() or 1) + 1), "loadfile"
        options.loadscopereorder = False


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        places = {f"test_{name}": place for place, name in enumerate(LONGEST)}
        items.sort(key=lambda item: places.get(item.path.stem, len(places)))


def pytest_configure(config: pytest.Config) -> None:
    """Import torch where tests run: 1.6 s that the process in front of the workers need not wait."""
    if getattr(config.option, "numprocesses", None) is None:
        import torch  # noqa: F401


def events_of(run_dir: Path, **sizes: int) -> "EventAccumulator":
    """Return what TensorBoard reads of the only run below the folder: scalars, and others by `sizes`."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    [folder] = (run_dir / "tensorboard").iterdir()
    return EventAccumulator(str(folder), size_guidance=sizes or None).Reload()


def copy_conf(folder: Path) -> None:
    """Copy conf/ into a folder, without pictures in TensorBoard: drawing takes longer than training."""
    shutil.copytree(ROOT / "conf", folder / "conf")
    file = folder / "conf" / "logger" / "tensorboard.yaml"
    file.write_text(file.read_text().replace("images: true", "images: false"))


def free_port() -> int:
    """Return a port of loopback on which nothing listens now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@dataclass
class Ended:
    """A command that has ended: its exit status and what it printed."""

    status: int
    out: str
    err: str
    seconds: float
    folder: Path

    @property
    def run_dir(self) -> Path:
        """The folder of the only run below logs/train."""
        [config] = self.folder.glob("logs/train/*/config.yaml")
        return config.parent


class Command:
    """Start programs in a folder, with a hard time limit, and find the processes that outlive them."""

    warm = True
    """Whether to fork commands from the warm process if possible."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mark = uuid.uuid4().hex

    @property
    def fresh(self) -> "Command":
        """The same, with a new interpreter for each command."""
        command = copy.copy(self)
        command.warm = False
        return command

    def popen(self, *arguments: str, **environment: str) -> "subprocess.Popen[str]":
        inherited = {key: value for key, value in os.environ.items() if key not in STARTED_BY}
        environment = {**inherited, MARK: self.mark, **environment}
        if self.warm and zygote().can_run(arguments, environment):
            return Forked(zygote(), [*arguments], self.folder, environment)
        return subprocess.Popen(
            [*arguments],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )

    def wait(self, process: "subprocess.Popen[str]", timeout: float = 240, began: float | None = None) -> Ended:
        began = time.monotonic() if began is None else began
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            pytest.fail(f"not ended after {timeout} s; it printed\n{out}\n{err}")
        out = re.sub("^threads: the load of this machine .*\n", "", out, flags=re.MULTILINE)  # of the other tests
        return Ended(process.returncode, out, err, time.monotonic() - began, self.folder)

    def __call__(self, *arguments: str, timeout: float = 240, **environment: str) -> Ended:
        return self.wait(self.popen(*arguments, **environment), timeout)

    def train(self, *overrides: str, timeout: float = 240, **environment: str) -> Ended:
        """`python train.py OVERRIDES`, as a user types it."""
        return self(sys.executable, str(ROOT / "train.py"), *overrides, timeout=timeout, **environment)

    def survivors(self, patience: float = 30) -> list[psutil.Process]:
        """Return the processes that a command of this test started and that live after `patience` seconds."""
        deadline = time.monotonic() + patience
        while (alive := self.alive()) and time.monotonic() < deadline:
            time.sleep(0.02)
        return alive

    def alive(self) -> list[psutil.Process]:
        processes = []
        for process in psutil.process_iter():
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                if process.environ().get(MARK) == self.mark and process.status() != psutil.STATUS_ZOMBIE:
                    processes.append(process)
        return processes


@pytest.fixture(autouse=True)
def without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under `pytest -s` at a terminal, ranks would be in this process."""
    monkeypatch.setattr("lockstep.command.build.at_a_terminal", lambda: False)


@pytest.fixture(scope="session", autouse=True)
def shared_by_all() -> Iterator[None]:
    """One fork server, and each composition once (composition.py)."""
    with one_forkserver(*RANK_ENGINES), remembered():
        yield


@pytest.fixture(autouse=True)
def fresh_where_marked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.node.get_closest_marker("fresh"):
        monkeypatch.setattr(Command, "warm", False)


@pytest.fixture
def process_as_it_was() -> Iterator[None]:
    """For tests that run an engine in this process, with one thread: restore what it changes."""
    import torch

    handler, threads = signal.getsignal(signal.SIGTERM), torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    signal.signal(signal.SIGTERM, handler)
    torch.set_num_threads(threads)


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Command]:
    command = Command(tmp_path)
    yield command
    survivors = command.survivors()
    for process in survivors:
        process.kill()
    assert not survivors, f"still running: {survivors}"


@pytest.fixture
def mnist() -> str:
    """The folder of the real MNIST files."""
    if not (MNIST_ROOT / "MNIST" / "raw" / "train-images-idx3-ubyte").is_file():
        pytest.skip(f"needs MNIST's files below {MNIST_ROOT} (or below $LOCKSTEP_MNIST)")
    return str(MNIST_ROOT)


@pytest.fixture
def make_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakePlan:
    """Make plans from overrides, as the command line composes them."""
    from tests.inspections import asked_here

    monkeypatch.setattr("lockstep.launch.start.in_child", asked_here)

    def make(*overrides: str) -> Plan:
        config, _run_dir = compose_job([*overrides])
        return choose_checkpoint(plan_from(config, tmp_path), folder_given=True)[0]

    return make


def require_refused(sentence: str, make: Callable[..., object], *words: str) -> None:
    """Check that a call is refused in one line that holds the sentence."""
    with pytest.raises(ConfigError) as refused:
        make(*words)
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.fixture
def make_user_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeUserPlan:
    """Make plans of the code in `user_code/`, each in a separate folder."""
    from tests.inspections import asked_once

    monkeypatch.syspath_prepend(str(USER_CODE))
    monkeypatch.setattr("lockstep.launch.start.in_child", asked_once(USER_CODE))

    def make(*overrides: str, folder: str = "run") -> Plan:
        config, _ = compose_job([f"hydra.searchpath=[file://{USER_CODE / 'conf'}]", *QUIET, *overrides])
        (tmp_path / folder).mkdir()
        return plan_from(config, tmp_path / folder)

    return make
