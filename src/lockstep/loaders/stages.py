"""The names of the stages of a run, and of what a LightningModule has for each."""

STAGES = ("train", "val", "test")
METHOD = {stage: f"{stage}_dataloader" for stage in STAGES}
STEP = {"train": "training_step", "val": "validation_step", "test": "test_step"}
