"""`profiler=pytorch`: torch's profiler, around a few batches of training on rank 0."""

import os
from pathlib import Path
from typing import Any

from lightning.pytorch.callbacks import Callback
from torch.profiler import ProfilerActivity, profile, schedule

from lockstep.base.files import short_path
from lockstep.base.progress import print_beside_bar
from lockstep.plan.plan import Plan

WAIT, BATCHES = 3, 5  # training batches before the profile, and within it
ROWS, LONGEST_NAME = 10, 50
FOLDER, TRACE = "profiler", "rank_0.pt.trace.json"  # TensorBoard's plugin for profiles looks for this ending


class OperationsProfile(Callback):
    """Prints the operations that took longest in the batches after the first ones, and writes a trace."""

    def __init__(self, plan: Plan) -> None:
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # or it reports on stderr that it starts, and a missing GPU
        on_gpu, planned = plan.accelerator == "gpu", plan.steps.epoch_batches * plan.max_epochs
        self.path, self.first = Path(plan.run_dir) / FOLDER / TRACE, min(WAIT, planned - 1) if planned else WAIT
        self.sort_by = "self_device_time_total" if on_gpu else "self_cpu_time_total"
        self.profile = profile(
            activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])],
            schedule=schedule(wait=max(0, self.first - 1), warmup=min(1, self.first), active=BATCHES, repeat=1),
            on_trace_ready=self.show,
            acc_events=True,
        )

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self.profile.start()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        self.profile.step()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self.profile.stop()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self.profile.stop()

    def show(self, ended: Any) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        ended.export_chrome_trace(str(self.path))
        table = ended.key_averages().table(self.sort_by, row_limit=ROWS, max_name_column_width=LONGEST_NAME)
        print_beside_bar(f"\nprofile of the training batches {self.first + 1} to {ended.step_num}\n{table}")
        print_beside_bar(f"trace for chrome://tracing or ui.perfetto.dev:\n  {short_path(self.path)}")
