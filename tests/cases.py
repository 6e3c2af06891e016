"""Short runs in float64 of each net, strategy and option that decides a number, for test_results.py."""

from pathlib import Path

COMMON = "precision=64-true accelerator=cpu threads=1 logger=none seed=3 max_epochs=2"
DIGITS = "data=digits data.test_size=1700 data.val_size=36 trainer.limit_test_batches=2 batch_size=12"
"""61 digits: six batches an epoch, the last of one sample, which only one rank of several has."""
FEW = f"{DIGITS} trainer.limit_train_batches=3"
LINE = "model=regression data=line data.samples=61 data.val_size=5 batch_size=12"
ROWS = "model=mlp model._target_=lockstep.models.Regressor model.net.hidden=[16] data=random_regression"
POINTS = "model=mlp model.net.hidden=[16] data=points data.samples=101 batch_size=9"
TEXT = (
    "model=char_rnn model.net.width=16 data=text data.length=16 batch_size=12 trainer.limit_train_batches=4"
    " trainer.limit_val_batches=2 trainer.limit_test_batches=2"
)
MLP = f"model=mlp model.net.hidden=[30,20] {DIGITS}"
CODER = f"model=autoencoder model.net.hidden=[16] {DIGITS}"
CNN = f"model=cnn {FEW}"
PLAIN_CNN = f"model=cnn model.net.norm=none {FEW}"
LENET = f"model=lenet model.net.dropout=0 {DIGITS}"
SPLIT = f"model=split_cnn {DIGITS}"

SGD = "optimizer=sgd optimizer.lr=0.05 optimizer.momentum=0.9"
GENTLE = "optimizer=sgd optimizer.lr=0.01 optimizer.momentum=0.9"
DECAY = "optimizer=adamw optimizer.weight_decay=0.1"
GROUPS = "optimizer=adamw_groups optimizer.weight_decay=0.1"
WARMUP = "scheduler=warmup_linear scheduler.warmup_steps=3"
CYCLE = "scheduler=onecycle scheduler.warmup_fraction=0.4"
CLIP, CLIP_VALUE = "gradient_clip_val=0.5", "gradient_clip_val=0.01 trainer.gradient_clip_algorithm=value"
SYNC = "sync_batchnorm=true"
RESUMED = "resume=true"
"""Such a case runs twice in its folder: until step 4, and to the end."""


def by(strategy: str, devices: int = 1, engine: str = "lightning") -> str:
    return f"strategy={strategy} devices={devices} engine={engine}"


CASES = {
    "mlp raw": f"{MLP} {SGD} {by('single', engine='raw')}",
    "mlp accumulate clip-value": f"{MLP} {SGD} accumulate_grad_batches=4 {CLIP_VALUE} {by('single')}",
    "softmax regression": f"model=linear {DIGITS} {SGD} {by('single')}",
    "line": f"{LINE} {GENTLE} {WARMUP} {by('single')}",
    "text": f"{TEXT} {by('single')}",
    "plain cnn": f"{PLAIN_CNN} {SGD} {WARMUP} accumulate_grad_batches=2 {by('single', engine='raw')}",
    "ddp mlp accumulate cycle clip": f"{MLP} {SGD} {CYCLE} {CLIP} accumulate_grad_batches=4 {by('ddp', 2)}",
    "ddp mlp ring": f"{MLP} {SGD} engine.gradient_sync=ring {by('ddp', 2, 'raw')}",
    "ddp cnn sync": f"{CNN} {GENTLE} {SYNC} {by('ddp', 2)}",
    "ddp autoencoder": f"{CODER} {by('ddp', 2, 'raw')}",
    "ddp rows": f"{ROWS} {GENTLE} batch_size=12 {by('ddp', 2)}",
    "ddp 3 points": f"{POINTS} {WARMUP} {by('ddp', 3)}",
    "ddp 3 line": f"{LINE} {GENTLE} accumulate_grad_batches=2 drop_last=true {by('ddp', 3, 'raw')}",
    "spawn lenet": f"{LENET} {SGD} {by('ddp_spawn', 2, 'raw')}",
    "fsdp mlp resumed": f"{MLP} {RESUMED} {by('fsdp', 2)}",
    "fsdp lenet groups": f"{LENET} {GROUPS} {by('fsdp', 2)}",
    "dp lenet accumulate": f"{LENET} {SGD} accumulate_grad_batches=2 {CLIP} {by('dp', 3)}",
    "stages micro-batches": f"{SPLIT} accumulate_grad_batches=2 strategy.micro_batches=2 {by('model_parallel', 2)}",
    "virtual 3 lenet": f"{LENET} {DECAY} {CYCLE} drop_last=true {by('virtual', 3, 'lightning')}",
}
QUICK = ("mlp raw", "ddp mlp accumulate cycle clip")
"""Cases that `pytest` runs; `pytest -m slow` runs the others."""


def commands(name: str, folder: Path) -> list[list[str]]:
    """Return the overrides of each run of a case in a folder: two if it resumes."""
    typed = [*f"{COMMON} {CASES[name]}".split(), f"hydra.run.dir={folder}"]
    if RESUMED not in typed:
        return [typed]
    return [[*(word for word in typed if word != RESUMED), "trainer.max_steps=4"], [*typed, "trainer.max_steps=-1"]]
