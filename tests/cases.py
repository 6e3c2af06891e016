"""Short runs in float64 for "no number changed": test_results.py and side_by_side.py run them.

Words are those of this tree; `words` translates them for trees of before LightningModules held the nets.
"""

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
    "mlp": f"{MLP} {by('single')}",
    "mlp raw": f"{MLP} {SGD} {by('single', engine='raw')}",
    "mlp groups cycle clip": f"{MLP} {GROUPS} {CYCLE} {CLIP} {by('single')}",
    "mlp accumulate clip-value": f"{MLP} {SGD} accumulate_grad_batches=4 {CLIP_VALUE} {by('single')}",
    "mlp drop-last warmup": f"{MLP} {DECAY} {WARMUP} drop_last=true {by('single')}",
    "mlp max-steps": f"{MLP} {SGD} {CYCLE} trainer.max_steps=8 {by('single')}",
    "mlp validation within": f"{MLP} {SGD} trainer.val_check_interval=2 {by('single')}",
    "mlp resumed": f"{MLP} {RESUMED} {by('single')}",
    "softmax regression": f"model=linear {DIGITS} {SGD} {by('single')}",
    "line": f"{LINE} {GENTLE} {WARMUP} {by('single')}",
    "rows": f"{ROWS} {GENTLE} batch_size=12 {by('single')}",
    "points": f"{POINTS} {by('single')}",
    "autoencoder": f"{CODER} {by('single')}",
    "text": f"{TEXT} {by('single')}",
    "cnn": f"{CNN} {GENTLE} {by('single')}",
    "plain cnn": f"{PLAIN_CNN} {SGD} {WARMUP} accumulate_grad_batches=2 {by('single', engine='raw')}",
    "lenet groups": f"{LENET} {GROUPS} {by('single')}",
    "split": f"{SPLIT} {SGD} {CLIP} {by('single')}",
    "ddp mlp": f"{MLP} {by('ddp', 2)}",
    "ddp mlp accumulate cycle clip": f"{MLP} {SGD} {CYCLE} {CLIP} accumulate_grad_batches=4 {by('ddp', 2)}",
    "ddp mlp resumed": f"{MLP} {SGD} {RESUMED} {by('ddp', 2)}",
    "ddp mlp ring": f"{MLP} {SGD} engine.gradient_sync=ring {by('ddp', 2, 'raw')}",
    "ddp cnn": f"{CNN} {GENTLE} {by('ddp', 2)}",
    "ddp cnn sync": f"{CNN} {GENTLE} {SYNC} {by('ddp', 2)}",
    "ddp lenet accumulate": f"{LENET} {DECAY} accumulate_grad_batches=2 {by('ddp', 2)}",
    "ddp autoencoder": f"{CODER} {by('ddp', 2, 'raw')}",
    "ddp rows": f"{ROWS} {GENTLE} batch_size=12 {by('ddp', 2)}",
    "ddp text": f"{TEXT} {by('ddp', 2)}",
    "ddp text accumulate clip": f"{TEXT} {SGD} accumulate_grad_batches=3 {CLIP} {by('ddp', 2, 'raw')}",
    "ddp 3 mlp": f"{MLP} {SGD} {by('ddp', 3)}",
    "ddp 3 points": f"{POINTS} {WARMUP} {by('ddp', 3)}",
    "ddp 3 line": f"{LINE} {GENTLE} accumulate_grad_batches=2 drop_last=true {by('ddp', 3, 'raw')}",
    "ddp 3 cnn sync": f"{CNN} {GENTLE} {SYNC} {by('ddp', 3)}",
    "ddp 3 split": f"{SPLIT} {SGD} accumulate_grad_batches=4 {CLIP} {by('ddp', 3)}",
    "spawn mlp": f"{MLP} {GROUPS} {by('ddp_spawn', 2)}",
    "spawn lenet": f"{LENET} {SGD} {by('ddp_spawn', 2, 'raw')}",
    "fsdp mlp": f"{MLP} {by('fsdp', 2)}",
    "fsdp mlp resumed": f"{MLP} {RESUMED} {by('fsdp', 2)}",
    "fsdp 3 mlp": f"{MLP} {SGD} {CYCLE} accumulate_grad_batches=4 {CLIP} {by('fsdp', 3)}",
    "fsdp cnn": f"{CNN} {GENTLE} {by('fsdp', 2, 'lightning')}",
    "fsdp lenet groups": f"{LENET} {GROUPS} {by('fsdp', 2)}",
    "dp mlp": f"{MLP} {by('dp', 3)}",
    "dp cnn": f"{CNN} {GENTLE} {by('dp', 2)}",
    "dp lenet accumulate": f"{LENET} {SGD} accumulate_grad_batches=2 {CLIP} {by('dp', 3)}",
    "stages": f"{SPLIT} {SGD} {WARMUP} {by('model_parallel', 2)}",
    "stages micro-batches": f"{SPLIT} accumulate_grad_batches=2 strategy.micro_batches=2 {by('model_parallel', 2)}",
    "virtual mlp": f"{MLP} {SGD} accumulate_grad_batches=4 {by('virtual', 2)}",
    "virtual cnn": f"{CNN} {GENTLE} {by('virtual', 2)}",
    "virtual 3 lenet": f"{LENET} {DECAY} {CYCLE} drop_last=true {by('virtual', 3, 'lightning')}",
}

BEFORE = {
    "model.net.": "model.",
    "model=autoencoder": "model=mlp task=autoencoding",
    "model=regression": "model=linear",
    "model=char_rnn": "model=char_rnn task=language_modelling",
    "model._target_=lockstep.models.Regressor ": "",
    "optimizer=adamw_groups": "optimizer=adamw optimizer.decay_bias_and_norm=false",
}
"""Words of 9b27836b in place of today's."""


def words(name: str, tree: Path) -> list[str]:
    """Return the overrides of a case for a tree, whose words are those of before if it has tasks."""
    text = f"{COMMON} {CASES[name]}"
    if (tree / "conf" / "task").is_dir():
        for today, before in BEFORE.items():
            text = text.replace(today, before)
    return text.split()


def commands(name: str, tree: Path, folder: Path) -> list[list[str]]:
    """Return the overrides of each run of a case in a folder: two if it resumes."""
    typed = [*words(name, tree), f"hydra.run.dir={folder}"]
    if RESUMED not in typed:
        return [typed]
    return [[*(word for word in typed if word != RESUMED), "trainer.max_steps=4"], [*typed, "trainer.max_steps=-1"]]
