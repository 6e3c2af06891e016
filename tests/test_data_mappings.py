"""Samples that are mappings: a plain net is trained on the keys that the data's configuration names."""

import pytest

from lockstep.base.config_error import ConfigError
from tests.comparing import metrics_in, require_close
from tests.conftest import MakeUserPlan, require_refused
from tests.test_user_module import DDP, SINGLE, VIRTUAL, trained

MLP = ("model=mlp", "model.net.hidden=[6]", "batch_size=16", "precision=64-true")


def test_a_net_is_trained_on_the_named_keys_as_on_pairs(make_user_plan: MakeUserPlan) -> None:
    job = (*MLP, "data=mapped", "strategy.in_process=true")
    pairs = ("data.dataset._target_=strange_loaders.BlobPairs", "~data.input_key", "~data.target_key")
    runs = (trained(make_user_plan(*job, *words, folder=name)) for name, words in (("mapped", ()), ("pairs", pairs)))
    assert len({metrics_in(run)["digest"] for run in runs}) == 1


@pytest.mark.slow
@pytest.mark.parametrize("data", ["mapped", "mapped_stream"])
def test_named_keys_in_every_world(data: str, make_user_plan: MakeUserPlan) -> None:
    """By ranks as by one process."""
    shape = ("+model.net.sample_shape=[4]",) if data == "mapped_stream" else ()
    job = (*MLP, f"data={data}", "max_epochs=1", *shape)
    ddp = trained(make_user_plan(*job, *DDP, folder="ddp"))
    for world in (SINGLE, VIRTUAL):
        job_of_one = (*job, *world, "strategy.in_process=true")
        require_close(trained(make_user_plan(*job_of_one, folder=world[0])), ddp)


INVALID = {
    "data.input_key=z": "data.input_key=z: a sample has no such key: it is a dict; write one of x, y.",
    "data.target_key=z": "data.target_key=z: a sample has no such key: it is a dict; write one of x, y.",
    "data.input_key=null": "data.target_key=y: it needs the key of the inputs; write data.input_key=KEY",
    "data=noisy +data.input_key=x": "data.input_key=x: a sample has no such key: it is a tuple; write one of none",
}


@pytest.mark.parametrize("words", INVALID)
def test_invalid_keys_are_rejected(words: str, make_user_plan: MakeUserPlan) -> None:
    require_refused(INVALID[words], make_user_plan, "model=mlp", "data=mapped", *SINGLE, *words.split())


def test_a_mapping_without_keys_is_rejected(make_user_plan: MakeUserPlan) -> None:
    """By the module: one of a user's may take mappings."""
    words = ("data.input_key=null", "data.target_key=null", "model.net.sample_shape=[4]", "strategy.in_process=true")
    plan = make_user_plan(*MLP, "data=mapped", *(f"+{word}" if "shape" in word else word for word in words))
    with pytest.raises(
        ConfigError, match=r"^data: a batch is a mapping of x, y; write data.input_key=KEY data.target_"
    ):
        trained(plan)
