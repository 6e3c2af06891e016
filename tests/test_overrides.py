from collections.abc import Callable

import pytest

from lockstep.command_line.overrides import require_one_option, text_keys, verbatim
from lockstep.config_error import ConfigError
from lockstep.plan import Plan

OPTIONS = {"engine": ["raw", "both"], "logger": ["csv", "none"], "experiment": ["one", "two"]}


def test_the_keys_of_text() -> None:
    own = {"name", "ckpt_path", "optimized_metric", "run_dir"}
    own |= {"logger.wandb.project", "logger.mlflow.experiment"}
    assert text_keys() == own | {"data.root", "process_group.init_method", "checkpoint.monitor"}


@pytest.mark.parametrize("text", ["1_000", "1e3", "0x10", "007", "yes", "no", "1.50", "-1", "+1", "nan", "12:30"])
def test_a_name_is_what_was_typed(make_plan: Callable[..., Plan], text: str) -> None:
    assert make_plan(f"name={text}").name == text


def test_what_is_no_text_is_left_to_hydra() -> None:
    left = ["seed=1_000", "name='a b'", "name=[1]", "name=1,2", "~name", "name", "name=", "--cfg", "optimizer.lr=1e3"]
    assert verbatim(left) == left
    assert verbatim(["name=1_000,b,2", "seed=1,2"], sweep=True) == ["name='1_000',b,'2'", "seed=1,2"]
    assert verbatim(["+name=1e3", "ckpt_path=3"]) == ["+name='1e3'", "ckpt_path='3'"]


@pytest.mark.parametrize(
    "word", ["engine=[raw,both]", "logger=[]", "engine=raw,[raw,both]", "logger@x=[1]", "experiment=[1]"]
)
def test_a_group_takes_one_option(word: str) -> None:
    with pytest.raises(ConfigError, match=": a group takes the name of one of its options; write "):
        require_one_option(["seed=1", word], OPTIONS)


def test_what_hydra_may_read_itself() -> None:
    require_one_option(
        ["engine=[raw]", "logger=csv", "logger=csv,[csv,mine]", "experiment=[one,two]", "logger=[", "model.hidden=[1]"],
        OPTIONS,
    )
