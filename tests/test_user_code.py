"""A user's own code, in a folder outside: every strategy and both engines train it, and say what is wrong."""

import sys
from functools import partial
from pathlib import Path

import pytest

from lockstep.base.config_error import ConfigError
from lockstep.command.job import for_ranks
from lockstep.launch.start import start_ranks
from lockstep.plan.plan import Plan
from lockstep.plan.schemas.run import ENGINES
from tests import conftest
from tests.comparing import metrics_in
from tests.conftest import USER_CODE, Command, MakeUserPlan, require_refused

QUIET = (*conftest.QUIET, "batch_size=12")


@pytest.fixture
def make_user_plan(make_user_plan: MakeUserPlan) -> MakeUserPlan:
    """In small batches."""
    return partial(make_user_plan, "batch_size=12")


def trained(plan: Plan) -> Path:
    start_ranks(for_ranks(plan), ENGINES[plan.engine.name])
    return Path(plan.run_dir)


@pytest.mark.slow
def test_code_in_the_working_directory_by_both_engines(command: Command) -> None:
    """Configs from --config-dir, samples made by workers, no test split, more outputs than the three classes."""
    for name in ("strange_nets.py", "strange_data.py"):
        (command.folder / name).write_text((USER_CODE / name).read_text())
    job = ("model=around", "+model.net.num_outputs=5", "data=three", "strategy=ddp_spawn", "devices=2", "engine=both")
    ended = command.train("--config-dir", str(USER_CODE / "conf"), *job, "+data.loader.num_workers=2", *QUIET)
    assert ended.status == 0, ended.err
    metrics = metrics_in(ended.run_dir)
    assert (metrics["verdict"], metrics["model"], metrics["steps"]) == ("identical", "Around", 2 * 6)
    assert ("val/f1" in metrics, "test/f1" in metrics) == (True, False)
    assert command.survivors() == []


INVALID = {
    "model.net._target_=strange_net.Residual": "=strange_net.Residual: there is no module strange_net; write the pa",
    "data.dataset._target_=strange_data.killed": "that imports your code has failed: it was ended by SIGSEGV",
    "data=noisy +data.loader.workers=2": "DataLoader.__init__() got an unexpected keyword argument 'workers'",
}


@pytest.mark.parametrize("words", INVALID)
def test_invalid_input_is_named_where_it_is(words: str, make_user_plan: MakeUserPlan) -> None:
    job = ("model=residual", "data=blobs", "strategy=ddp", "devices=2")
    require_refused(INVALID[words], make_user_plan, *job, *words.split())


def test_an_import_error_has_the_users_lines(command: Command) -> None:
    """With their file and line, once, and none of ours."""
    job = ("model=residual", "model.net._target_=strange_broken.Net", "data=blobs", "strategy=ddp", "devices=2", *QUIET)
    ended = command.train("--config-dir", str(USER_CODE / "conf"), *job, PYTHONPATH=str(USER_CODE))
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.splitlines() == [
        "Traceback (most recent call last):",
        f'  File "{USER_CODE / "strange_broken.py"}", line 1, in <module>',
        '    raise ImportError("no luck today")',
        "ImportError: no luck today",
        "model.net._target_=strange_broken.Net: its module cannot be imported.",
    ]
    assert not (command.folder / "logs").exists()


def test_a_net_without_parameters_is_refused(make_user_plan: MakeUserPlan) -> None:
    net = ("model.net._target_=strange_nets.Wrong", "model.net.kind=empty")
    with pytest.raises(ConfigError, match=r"model.net: Wrong has no parameter to train; write another net."):
        trained(make_user_plan("model=wrong", *net, "data=blobs"))


def test_the_error_of_a_nets_call_has_its_lines(make_user_plan: MakeUserPlan) -> None:
    with pytest.raises(ConfigError) as raised:
        make_user_plan("model=wrong", "model.net.kind=raises", "data=blobs")
    first, file, _, error, last = str(raised.value).splitlines()
    assert first == "Traceback (most recent call last):"
    assert file.endswith("in __init__")
    assert error == "RuntimeError: no weights today"
    assert last == "model.net._target_=strange_nets.Wrong: it raises this when it is called."


def test_the_command_imports_none_of_it(make_user_plan: MakeUserPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("strange_nets", "strange_data"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    plan = make_user_plan("model=residual", "data=noisy")
    assert (plan.data.train_samples, plan.data.val_size, plan.data.num_classes) == (71, 20, 3)
    assert not {"strange_nets", "strange_data"} & sys.modules.keys()
