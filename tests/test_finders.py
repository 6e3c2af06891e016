"""LearningRateFinder and BatchSizeFinder: the found value is in the plan as if it were typed, by a printed word."""

import pytest

from lockstep.base.config_error import ConfigError
from tests.conftest import MakePlan, MakeUserPlan

RATE = ("callbacks=lr_finder", "callbacks.lr_finder.num_training_steps=30", "callbacks.lr_finder.min_lr=1e-4")
SMALL = ("model.net.hidden=[8]", "data.test_size=1000", "logger=none", "accelerator=cpu", "threads=1")
EARLY = ("model=early", "data=none", "strategy=single", "accelerator=cpu")


@pytest.mark.slow
def test_the_found_rate_is_that_of_the_plan(make_plan: MakePlan, capsys: pytest.CaptureFixture[str]) -> None:
    plan = make_plan(*SMALL, *RATE)
    assert plan.model.optimizer is not None
    rate = plan.model.optimizer["lr"]
    assert 1e-4 < rate < 1
    assert f"LearningRateFinder: optimizer.lr={rate}, found by trial steps" in capsys.readouterr().out
    assert plan.options["optimizer.lr"] == rate
    assert plan.callbacks == ()
    assert plan.command.words == ("++callbacks.lr_finder=null", f"++optimizer.lr={rate}")
    again = make_plan(*SMALL, *RATE, *plan.command.words)  # what a resumed run is composed of
    assert (again.model.optimizer, again.command.words) == (plan.model.optimizer, ())


@pytest.mark.slow
def test_a_found_batch_size_is_used_by_the_next_search(make_plan: MakePlan, capsys: pytest.CaptureFixture[str]) -> None:
    size = ("callbacks=[batch_size_finder,lr_finder]", "+callbacks.batch_size_finder.max_trials=4", *RATE[1:])
    plan = make_plan(*SMALL, "strategy.in_process=false", "batch_size_per_device=3", *size)
    assert plan.batch_size == 16  # 2, doubled until the last trial
    assert "BatchSizeFinder: batch_size=16, found" in capsys.readouterr().out
    assert "++batch_size=16" in plan.command.words
    with pytest.raises(ConfigError, match="strategy=ddp: BatchSizeFinder measures the memory of one device"):
        make_plan(*SMALL, "strategy=ddp", "devices=2", "callbacks=batch_size_finder")


def test_the_argument_of_a_module(make_user_plan: MakeUserPlan) -> None:
    plan = make_user_plan(*EARLY, *RATE, folder="found")
    assert plan.model.call["learning_rate"] not in (None, 0.1)
    plan = make_user_plan(*EARLY, "callbacks=lr_finder", "trainer.fast_dev_run=true", folder="dev")
    assert ("learning_rate" in plan.model.call, plan.callbacks) == (False, ())


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("callbacks.lr_finder.num_training_steps=5",), "LearningRateFinder: it has measured too few finite losses"),
        (("+callbacks.lr_finder.attr_name=rate",), "LearningRateFinder: Early takes no rate"),
        (("callbacks.lr_finder._target_=strange_early.Later",), "Later: it searches within training"),
    ],
)
def test_searches_without_a_result_are_refused(
    words: tuple[str, ...], sentence: str, make_user_plan: MakeUserPlan
) -> None:
    later = "Later" in words[0]
    typed = ("+callbacks.x._target_=strange_early.Later",) if later else ("callbacks=lr_finder", *words)
    with pytest.raises(ConfigError, match=f"callbacks={sentence}"):
        make_user_plan(*EARLY, *typed)
