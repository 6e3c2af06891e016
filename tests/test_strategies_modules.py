"""LightningModules with a `net`: dp, model_parallel and fsdp compute what `single` computes."""

from pathlib import Path

import pytest
import torch

import lockstep.engine
from lockstep.base.config_error import ConfigError
from lockstep.engine.session import prepared_module
from lockstep.runs.compare import compare
from tests.checkpoints import net_state
from tests.comparing import lines, metrics_in, require_close, require_identical
from tests.conftest import MakeUserPlan, require_refused
from tests.rank_helpers import ALONE
from tests.test_user_module import SINGLE, by_both, trained

JOB = ("model=with_net", "data=blobs_data", "precision=64-true", "test=true")
CONV = ("+model.kind=conv", "+model.optimizer=SGD", "+model.lr=0.05")
ACCUMULATED = ("accumulate_grad_batches=3", "gradient_clip_val=0.2")
RAGGED = ("+data.samples=97", "+data.batch_size=12", "batch_size=9")
"""73 samples in batches of 9, and 13 of a validation in batches of 12: the last batch of both is one sample."""
STAGED = ("+model.kind=staged",)
DP2, DP3 = ("strategy=dp", "devices=2"), ("strategy=dp", "devices=3")
STAGES = ("strategy=model_parallel", "devices=2")
FSDP2 = ("strategy=fsdp", "devices=2")


def equal_to_single(make_user_plan: MakeUserPlan, job: tuple[str, ...], *world: str) -> list[Path]:
    """Return the runs of both loops, which are bit-equal, and close to one on a single device, its weights too."""
    single = trained(make_user_plan(*JOB, *job, *SINGLE, folder="single"))
    runs = by_both(make_user_plan(*JOB, *job, *world, folder="both"))
    require_identical(*runs)
    for run in runs:
        require_close(single, run)
    expected, weights = (net_state(run / "checkpoints" / "last.ckpt") for run in (single, runs[0]))
    assert expected.keys() == weights.keys()
    for name, weight in expected.items():
        torch.testing.assert_close(weights[name], weight, rtol=0, atol=1e-10)
    return [single, *runs]


def test_in_float64_it_is_single(make_user_plan: MakeUserPlan) -> None:
    """tests/test_strategies_table.py has fsdp."""
    single, _, own = equal_to_single(make_user_plan, RAGGED, *DP3)
    other = trained(make_user_plan(*JOB, *RAGGED, *DP3, "seed=1", folder="other"))
    assert not compare(single, other).within_tolerance
    counted = [name for name in metrics_in(own) if name.startswith("val_count")]
    assert len(counted) == 2
    assert [metrics_in(own)[name] for name in counted] == [metrics_in(single)[name] for name in counted]


@pytest.mark.slow
@pytest.mark.parametrize("words", ["Measuring", "Clamping", "Twice"])
def test_steps_that_shards_must_follow(words: str, make_user_plan: MakeUserPlan) -> None:
    """Hooks measure weights and gradients, and change them; several calls of the net."""
    job = f"model._target_=strange_with_net.{words}".split()
    equal_to_single(make_user_plan, (*job, "gradient_clip_val=0.01", "trainer.gradient_clip_algorithm=value"), *FSDP2)


@pytest.mark.slow
def test_stages_are_single_bit_for_bit(make_user_plan: MakeUserPlan) -> None:
    single, _, own = equal_to_single(make_user_plan, (*STAGED, *ACCUMULATED), *STAGES)
    require_identical(single, own)
    divided = trained(make_user_plan(*JOB, *STAGED, *ACCUMULATED, *STAGES, "strategy.micro_batches=4", folder="micro"))
    require_close(divided, own)
    assert compare(divided, own).verdict != "identical"


@pytest.mark.slow
def test_averages_of_weights_beside_a_replaced_net(make_user_plan: MakeUserPlan) -> None:
    """As in one process; the averages are not the weights without the callback."""
    single, *_ = equal_to_single(make_user_plan, (*STAGED, "callbacks=ema", "callbacks.ema.decay=0.5"), *DP2)
    alone = trained(make_user_plan(*JOB, *STAGED, *SINGLE, folder="alone"))
    averaged, weights = (net_state(run / "checkpoints" / "last.ckpt") for run in (single, alone))
    assert any(not torch.equal(averaged[name], weight) for name, weight in weights.items())


def test_replicas_take_batchnorm_of_their_chunks(make_user_plan: MakeUserPlan) -> None:
    """The control of dp = single: the replicas are really there."""
    norm = ("+model.kind=norm",)
    single = trained(make_user_plan(*JOB, *norm, *SINGLE, folder="single"))
    replicated = trained(make_user_plan(*JOB, *norm, *DP2, folder="dp"))
    assert not compare(single, replicated, tolerance=1e-10).within_tolerance


def test_synchronized_batchnorm_of_ragged_batches(make_user_plan: MakeUserPlan) -> None:
    """The last batch has two samples for three ranks: that without one adds nothing to the statistics."""
    job = ("+model.kind=norm", "sync_batchnorm=true", "+data.samples=56", "batch_size=10")
    single = trained(make_user_plan(*JOB, *job, *SINGLE, folder="single"))
    require_close(single, trained(make_user_plan(*JOB, *job, "strategy=ddp", "devices=3", folder="ranks")))


@pytest.mark.slow
def test_fsdp_ranks_hold_shards_of_the_net(make_user_plan: MakeUserPlan) -> None:
    """A module with weights outside its net, or one that cannot be divided, keeps all of them on each rank."""
    for words, differing in (("WithNet", 2), ("Outside", 1), ("WithNet +model.kind=scalar", 1)):
        job = f"model._target_=strange_with_net.{words}".split()
        run = trained(make_user_plan(*JOB, *job, *FSDP2, folder=words))
        fingerprints = lines(run, "fingerprint")
        assert [len({*line["weights"]}) for line in fingerprints] == [differing] * 2
        assert all(len({*line["optimizer"]}) == 2 for line in fingerprints)


OUTSIDE, LEFT_OUT = "model._target_=strange_with_net.Outside", "+model.kind=left_out"
MIXED = "strategy=fsdp: ranks use different blocks or weights of WithNet.net in a step, which would be mixed"
ALIASED = "model._target_=strange_with_net.Aliased"
REFUSED = {
    "model=gan data=blobs_data strategy=dp devices=2": "strategy=dp: it computes the attribute `net` of a",
    "model=gan data=blobs_data strategy=model_parallel devices=2": "strategy=model_parallel: it computes the attribute",
    f"model=with_net {LEFT_OUT} data=blobs_data strategy=model_parallel devices=2": "stages, and it has none",
    f"model=with_net {STAGED[0]} data=blobs_data strategy=model_parallel devices=4": "devices=4: model=WithNet has 3",
    "model=with_net data=blobs_data strategy=fsdp devices=2 callbacks=ema": "strategy=fsdp: EMAWeightAveraging may",
    "model=with_net data=blobs_data strategy=fsdp devices=2 callbacks=swa": "StochasticWeightAveraging may read or",
    "model=with_net data=blobs_data strategy=fsdp devices=2 +callbacks.mine._target_=strange_with_net.Stopwatch": (
        "strategy=fsdp: Stopwatch may read or change weights, and each rank has a shard of WithNet.net; write"
    ),
    "model=with_net data=blobs_data strategy=dp devices=2 compile=true": "compile=true: strategy=dp computes with new",
    "model=gan data=blobs_data show_shapes=true": "show_shapes=true: it shows the attribute `net` of a module, and GAN",
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_does_not_fit_is_refused(words: str, make_user_plan: MakeUserPlan) -> None:
    require_refused(REFUSED[words], make_user_plan, *words.split())


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("+model.optimizer=Adafactor",), "strategy=fsdp: Adafactor computes with rows and columns of full weights"),
        (("+model.kind=experts", "batch_size=2"), MIXED),
        (("+model.kind=branches", "batch_size=2"), MIXED),
        ((ALIASED,), "strategy=fsdp: a step uses weights of net outside its forward"),
        (("model._target_=strange_with_net.Copied",), "strategy=fsdp: a hook copies net, of which each rank has a sh"),
        (("model._target_=strange_with_net.Averaging",), "strategy=fsdp: WeightAveraging may read or change weights"),
        (
            (ALIASED, "strategy=pipeline"),
            "strategy=pipeline: a step uses weights of net outside its forward, and each rank has a part",
        ),
    ],
)
def test_what_only_ranks_see_is_refused_there(
    words: tuple[str, ...], sentence: str, make_user_plan: MakeUserPlan
) -> None:
    with pytest.raises(ConfigError) as refused:
        trained(make_user_plan(*JOB, *FSDP2, *words))
    assert sentence in str(refused.value)


def test_callbacks_that_read_no_weights_run_beside_shards(make_user_plan: MakeUserPlan) -> None:
    callbacks = ("callbacks=[timer,early_stopping,lr_monitor]", "logger=csv")
    job = (*JOB, *callbacks, "callbacks.early_stopping.monitor=val_loss/dataloader_idx_0")
    single = trained(make_user_plan(*job, *SINGLE, folder="single"))
    require_close(single, trained(make_user_plan(*job, *FSDP2, folder="fsdp")))


@pytest.mark.usefixtures("process_as_it_was")
def test_each_replica_shows_the_shapes_of_its_chunk(
    make_user_plan: MakeUserPlan, capsys: pytest.CaptureFixture[str]
) -> None:
    lockstep.engine.run(make_user_plan(*JOB, *DP2, "show_shapes=true", "max_epochs=1"), ALONE)
    assert capsys.readouterr().out.count("a replica sees (4, 4) and returns (4, 3)") == 2


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_compiled_shards_compute_the_same(make_user_plan: MakeUserPlan) -> None:
    compiled = trained(make_user_plan(*JOB, *FSDP2, "compile=true", folder="compiled"))
    require_close(trained(make_user_plan(*JOB, *SINGLE, folder="single")), compiled)


@pytest.mark.slow
def test_in_bfloat16_the_engines_are_one(make_user_plan: MakeUserPlan) -> None:
    require_identical(*by_both(make_user_plan(*JOB, *FSDP2, "precision=bf16-mixed", "max_epochs=1")))


def test_the_net_of_a_module_has_its_channels_last(make_user_plan: MakeUserPlan) -> None:
    for name, memory_format in (("auto", torch.channels_last), ("contiguous", torch.contiguous_format)):
        plan = make_user_plan(*JOB, *CONV, *SINGLE, f"memory_format={name}", "accelerator=cpu", folder=name)
        module = prepared_module(plan)
        assert module.get_parameter("net.2.block2.0.weight").is_contiguous(memory_format=memory_format)
