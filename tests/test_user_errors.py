"""An error in the user's code is shown from their first frame on, of the rank that raised it; one of ours whole."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import lockstep
from lockstep.base.config_error import ConfigError
from lockstep.launch.failure import RankFailed, failure_report
from lockstep.launch.start import start_ranks
from lockstep.plan.schemas.run import ENGINES
from lockstep.plan.targets.frames import is_user_file
from tests import test_user_code
from tests.conftest import MakeUserPlan

make_user_plan = test_user_code.make_user_plan

FAILING = ("model=residual", "model.net._target_=strange_nets.Failing", "data=blobs")


def shown(plan: object) -> str:
    with pytest.raises(RankFailed) as raised:
        start_ranks(plan, ENGINES[plan.engine.name])  # type: ignore[attr-defined, arg-type]
    return str(raised.value)


def frames(text: str) -> list[tuple[str, str]]:
    """File and function of each frame."""
    return [(Path(file).name, function) for file, function in re.findall(r'File "(.*)", line \d+, in (.*)', text)]


def test_an_error_in_a_net_is_shown_from_the_users_first_frame_on(make_user_plan: MakeUserPlan) -> None:
    text = shown(make_user_plan(*FAILING, "+model.net.where=rank 1", "strategy=ddp", "devices=2"))
    assert text.splitlines()[0] == "rank 1 failed: Traceback (most recent call last):"
    assert frames(text) == [("strange_nets.py", "forward")]
    assert text.splitlines()[-1] == "RuntimeError: of 6 rows"


VIRTUAL = ("strategy=virtual", "devices=2", "strategy.in_process=true")


def test_of_virtual_ranks_it_says_which(make_user_plan: MakeUserPlan) -> None:
    """The third call is that of rank 0 in the second batch."""
    text = shown(make_user_plan(*FAILING, "+model.net.where=layer", *VIRTUAL))
    assert frames(text)[0] == ("strange_nets.py", "forward")
    assert text.splitlines()[-1] == "In rank 0 of strategy=virtual."


def test_an_error_in_a_data_set_with_its_cause(make_user_plan: MakeUserPlan) -> None:
    job = ("model=residual", "data=noisy", "data.dataset._target_=strange_data.Unreadable", "data.loader.num_workers=2")
    text = shown(make_user_plan(*job, "strategy.in_process=true"))
    assert frames(text) == [("strange_data.py", name) for name in ("label", "__getitem__", "label")]
    assert text.count("ValueError: no label at 40") == 1
    assert text.count("\nKeyError: 40\n\nThe above exception was the direct cause") == 1
    assert re.search(r"\nIn DataLoader worker process \d.$", text)


ENDINGS = {
    "gathers": r"^drop_last=false: self.all_gather gets tensors of unequal shapes, \[\[2, 4\]\] and \[\[1, 4\]\]; ",
    "gathers by torch": r"^rank 1 failed: it was ended by SIGABRT \(gloo .* drop_last=true; the output ",
    "is interrupted": r"^rank 1 failed: Traceback .*\n.*strange_endings.py.*, in training_step(.*\n)+KeyboardInterrupt",
    "loops": r"^rank 1 failed: it did not answer within 3 s \(process_group.timeout\): it loops, waits or is stopped$",
}


@pytest.mark.parametrize(
    ("how", "samples"),
    [
        ("gathers", 63),  # in the last batch rank 1 has one sample
        *(pytest.param(how, 63, marks=pytest.mark.slow) for how in [*ENDINGS][1:]),
    ],
)
def test_how_a_rank_of_a_module_ends(how: str, samples: int, make_user_plan: MakeUserPlan) -> None:
    """The cause is named, in the user's own frames."""
    module = ("model=classifier", "model._target_=strange_endings.Ending", f"+model.how={how}")
    data = ("data=blobs_data", f"+data.samples={samples}", "process_group.timeout=3")
    plan = make_user_plan(*module, *data, "strategy=ddp", "devices=2")
    with pytest.raises((RankFailed, ConfigError), match=ENDINGS[how]):
        start_ranks(plan, ENGINES["lightning"])


@pytest.mark.slow
def test_a_thread_keeps_no_rank_for_ever(make_user_plan: MakeUserPlan) -> None:
    """Python waits for a thread that is no daemon."""
    module = ("model=classifier", "model._target_=strange_endings.Ending", "+model.how=has a thread", "max_epochs=1")
    plan = make_user_plan(*module, "data=blobs_data", "strategy=ddp", "devices=2")
    assert start_ranks(plan, ENGINES["lightning"])["steps"] == 4


def test_a_data_set_whose_iterator_ends_in_a_worker(make_user_plan: MakeUserPlan) -> None:
    samples = ("data=noisy", "data.dataset._target_=strange_endings.Samples", "data.loader.num_workers=1")
    text = shown(make_user_plan("model=residual", *samples))
    assert frames(text) == [("strange_endings.py", "__getitem__")], text
    assert text.splitlines()[-1].startswith("In DataLoader worker process 0.")


def test_an_error_of_lockstep_is_shown_with_all_frames(
    make_plan: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lockstep.engine.create_trainer", None)
    text = shown(make_plan("logger=none", "strategy.in_process=true"))
    assert frames(text) == [("worker.py", "run_in_process"), ("worker.py", "run_engine"), ("__init__.py", "run")]


def test_an_error_without_text_is_shown() -> None:
    class Wordless(Exception):
        def __str__(self) -> str:
            raise ValueError

    assert str(failure_report(Wordless(), 1).error).endswith("Wordless: <exception str() failed>")


def test_which_files_are_the_users() -> None:
    """A package beside ours whose name begins like it, an installed one, a cell of a notebook."""
    ours = str(Path(lockstep.__file__).parent)
    user_files = [f"{ours}_nets/net.py", "/venv/lib/python3.11/site-packages/their_nets/net.py", "<ipython-input-3>"]
    assert all(map(is_user_file, user_files))
    assert not any(map(is_user_file, [f"{ours}/job.py", pytest.__file__.replace("pytest", "torch"), re.__file__]))
