"""strategy=fsdp with LightningModules that read and change their weights anywhere: the same as on one process."""

import json

import pytest
import torch

from lockstep.compare import compare
from lockstep.config_error import ConfigError
from tests.checkpoints import net_state
from tests.conftest import MakeUserPlan
from tests.resuming import same_after_kill, start
from tests.test_user_module import MODULES, PLAIN, SINGLE, VIRTUAL, by_both, trained

TWO, THREE = ("strategy=fsdp", "devices=2"), ("strategy=fsdp", "devices=3")
TEACHER = ("model=teacher", "data=rows")
ACCUMULATED = ("accumulate_grad_batches=2", "gradient_clip_val=0.3")
JOBS = {
    "teacher": ((*TEACHER, *ACCUMULATED, "callbacks=[ema]", "callbacks.ema.decay=0.5"), THREE),
    "critic": (("model=critic", "data=rows"), TWO),
}
SLOW_JOBS = {
    "each batch a step": (TEACHER, TWO),
    "uneven": (("model=uneven", "data=uneven_data"), TWO),
    **{name: ((*MODULES[name], *PLAIN.get(name, ())), TWO) for name in ("classifier", "gan", "autoencoder", "stream")},
}


@pytest.mark.parametrize(
    ("job", "ranks"),
    [
        *(pytest.param(*job, id=name) for name, job in JOBS.items()),
        *(pytest.param(*job, id=name, marks=pytest.mark.slow) for name, job in SLOW_JOBS.items()),
    ],
)
def test_in_float64_it_is_single(job: tuple[str, ...], ranks: tuple[str, ...], make_user_plan: MakeUserPlan) -> None:
    """By either engine bit for bit the same; another seed is another run."""
    job = (*job, "precision=64-true")
    single = trained(make_user_plan(*job, "engine=raw", *SINGLE, folder="single"))
    runs = by_both(make_user_plan(*job, *ranks, folder="both"))
    for run in runs:
        verdict = compare(single, run)
        assert verdict.within_tolerance, verdict.text()
        assert verdict.max_diff < 1e-10
    assert compare(runs[0], runs[1]).verdict == "identical"
    if ranks == THREE:
        other = trained(make_user_plan(*job, "engine=raw", "seed=1", *SINGLE, folder="other"))
        assert not compare(runs[1], other).within_tolerance
    lines = [json.loads(line) for line in (runs[1] / "record.jsonl").read_text().splitlines()]
    fingerprints = [line["fingerprint"] for line in lines if "fingerprint" in line]
    assert all(line["sharded"] and len({*line["weights"]}) > 1 for line in fingerprints)


def test_each_rank_may_choose_its_layers(make_user_plan: MakeUserPlan) -> None:
    """Where one is no other's, nobody may add their gradients."""
    job = ("model=experts", "data=rows", "precision=64-true", "engine=raw")
    runs = [trained(make_user_plan(*job, *world, folder=world[0])) for world in (VIRTUAL, TWO)]
    verdict = compare(runs[0], runs[1])
    assert verdict.within_tolerance, verdict.text()
    assert verdict.max_diff < 1e-10


@pytest.mark.parametrize(
    ("engine", "job"),
    [
        ("lightning", (*TEACHER, *ACCUMULATED)),
        pytest.param("raw", JOBS["critic"][0], marks=pytest.mark.slow),
        pytest.param("lightning", MODULES["classifier"], marks=pytest.mark.slow),
    ],
)
def test_killed_in_a_step_it_ends_the_same(
    engine: str, job: tuple[str, ...], make_user_plan: MakeUserPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_user_plan(*job, *TWO, f"engine={engine}", "checkpoint.every_n_steps=1", "max_epochs=3")
    same_after_kill(plan, 4, start(plan, monkeypatch), monkeypatch)


@pytest.mark.parametrize("engine", ["raw", pytest.param("lightning", marks=pytest.mark.slow)])
def test_checkpoints_resume_under_other_strategies(engine: str, make_user_plan: MakeUserPlan) -> None:
    job = (*TEACHER, "precision=64-true")
    uninterrupted = trained(make_user_plan(*job, "engine=raw", *SINGLE, folder="uninterrupted"))
    for name, first, second in (("from single", SINGLE, TWO), ("from shards", TWO, SINGLE)):
        begun = trained(make_user_plan(*job, f"engine={engine}", *first, "max_epochs=1", folder=f"{name}, begun"))
        path = f"ckpt_path='{begun / 'checkpoints' / 'last.ckpt'}'"
        ended = trained(make_user_plan(*job, f"engine={engine}", *second, path, folder=name))
        expected, resumed = (net_state(run / "checkpoints" / "last.ckpt") for run in (uninterrupted, ended))
        for key, tensor in expected.items():
            torch.testing.assert_close(resumed[key], tensor, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (
            MODULES["late"],
            "strategy=fsdp: LBFGS searches along one vector of all weights, and each rank has a shard; write "
            "strategy=ddp.",
        ),
        (
            (*TEACHER, "model._target_=strange_weights.Remembering"),
            "strategy=fsdp: an optimizer has tensors that configure_optimizers did not take from the module's "
            "parameters; write self.parameters() in it, or strategy=ddp.",
        ),
        (
            (*TEACHER, "model._target_=strange_weights.Remembering", "+model.early=list"),
            "strategy=fsdp: the module keeps weights in penalized too, where they would never change; write "
            "self.parameters() where they are used, or strategy=ddp.",
        ),
        (
            (*TEACHER, "model._target_=strange_weights.Remembering", "+model.early=none"),
            "strategy=fsdp: Adafactor computes with rows and columns of full weights, and each rank has a shard; "
            "write strategy=ddp.",
        ),
    ],
)
@pytest.mark.parametrize("engine", ["raw", pytest.param("lightning", marks=pytest.mark.slow)])
def test_modules_that_shards_break_are_rejected(
    engine: str, overrides: tuple[str, ...], sentence: str, make_user_plan: MakeUserPlan
) -> None:
    with pytest.raises(ConfigError) as refused:
        trained(make_user_plan(*overrides, f"engine={engine}", *TWO))
    assert str(refused.value) == sentence
