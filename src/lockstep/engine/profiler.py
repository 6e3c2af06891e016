"""`profiler=pytorch`: torch's profiler, around a few batches of training on rank 0."""

import os
from pathlib import Path
from typing import Any

from lightning.pytorch.callbacks import Callback
from torch.profiler import ProfilerActivity, profile

from lockstep.base.files import short_path
from lockstep.base.progress import print_beside_bar
from lockstep.plan.plan import Plan

WAIT, BATCHES = 3, 5  # training batches before the profile, and within it
ROWS, LONGEST_NAME = 10, 50
FOLDER, TRACE = "profiler", "rank_0.pt.trace.json"  # TensorBoard's plugin for profiles looks for this ending


class OperationsProfile(Callback):
    """Prints the operations that took longest in the batches after the first ones, and writes a trace."""

    profile: Any = None

    def __init__(self, plan: Plan) -> None:
        self.folder, self.on_gpu, self.batches = Path(plan.run_dir) / FOLDER, plan.accelerator == "gpu", 0
        planned = plan.steps.epoch_batches * plan.max_epochs
        self.first = min(WAIT, planned - 1) if planned else WAIT

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        if self.batches == self.first:
            os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # or it reports on stderr that it starts, and a missing GPU
            activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if self.on_gpu else [])]
            self.profile = profile(activities=activities, acc_events=True)
            self.profile.start()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        self.batches += 1
        if self.batches == self.first + BATCHES:
            self.on_train_end(trainer, pl_module)
        self.on_train_start(trainer, pl_module)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        if self.profile is None:
            return
        ended, self.profile = self.profile, None
        ended.stop()
        self.folder.mkdir(parents=True, exist_ok=True)
        ended.export_chrome_trace(str(self.folder / TRACE))
        sort_by = "self_device_time_total" if self.on_gpu else "self_cpu_time_total"
        table = ended.key_averages().table(sort_by, row_limit=ROWS, max_name_column_width=LONGEST_NAME)
        print_beside_bar(f"\nprofile of the training batches {self.first + 1} to {self.batches}\n{table}")
        print_beside_bar(f"trace for chrome://tracing or ui.perfetto.dev:\n  {short_path(self.folder / TRACE)}")

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        if self.profile is not None:
            self.profile.stop()
