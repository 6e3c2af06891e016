"""Curves, texts and hyper-parameters for TensorBoard, whose points are handed on together.

TensorBoard calls a run by its folder, so that the folder below tensorboard/ bears the run's label.
"""

import time
import warnings
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from lockstep.loggers.logger import HyperParameter, Logger
from lockstep.loggers.run_label import run_label
from lockstep.plan import Plan

Layout = Mapping[str, Mapping[str, Sequence[str]]]
"""Regular expressions of curves, by category and chart."""

FLUSH_SECONDS = 1.0
"""Points are handed on together, a second's worth at a time."""
FOLDER = "tensorboard"
EVENTS = "events.out.tfevents.*"

GROUPED = {"lr": "train/lr", "samples_per_second": "work/samples_per_second", "epoch": "work/epoch"}
"""Names without a group, as TensorBoard has them. It shows groups by the alphabet and opens the first two: what is
trained comes before what it takes.
"""


def folder_of(plan: Plan) -> Path:
    """Where a plan's events go: a resumed run goes on in the folder that it has."""
    folder = Path(plan.run_dir) / FOLDER
    begun = [path.parent for path in folder.glob(f"*/{EVENTS}")] if plan.resume else []
    return max(begun, key=lambda path: path.stat().st_mtime, default=folder / run_label(plan))


class TensorBoard(Logger):
    """What is written below a folder. From `resumed_at` on, points of an earlier file are of training that was lost.

    The hyper-parameters are written when the first points go to the disk: a module has added its own by then. Which of
    them differ among the runs that it shows TensorBoard itself finds out, and lists these first; the last point of each
    curve is a metric beside them.
    """

    def __init__(self, folder: Path, hparams: Mapping[str, HyperParameter], resumed_at: int | None = None) -> None:
        from torch.utils.tensorboard import SummaryWriter

        purge = None if resumed_at is None else resumed_at + 1
        self.writer: Any = SummaryWriter(str(folder), purge_step=purge)
        self.flushed = time.monotonic()
        self.waiting: list[tuple[Mapping[str, float], int, float]] = []
        self.hparams, self.began, self.epoch_at = dict(hparams), False, -1
        self.trial = f"{folder.name}  {folder.parent}"

    def log_metrics(self, values: Mapping[str, float], step: int) -> None:
        """What is logged several times at a step has the epoch each time, and its curve one point."""
        again, self.epoch_at = self.epoch_at == step, step if "epoch" in values else self.epoch_at
        left_out = "epoch" if again else None
        values = {GROUPED.get(name, name): own for name, own in values.items() if name != left_out}
        self.waiting.append((values, step, time.time()))
        if time.monotonic() - self.flushed > FLUSH_SECONDS:
            self.flush()

    def log_text(self, name: str, text: str) -> None:
        """Add a page of Markdown about the run."""
        from tensorboard.plugins.text.summary_v2 import text_pb  # torch's own appends a word to each name

        self.writer.file_writer.add_summary(text_pb(name, text))

    def log_image(self, name: str, picture: Any, step: int) -> None:
        """Add a picture (height, width, 3) of bytes. SummaryWriter's own compression takes several times as long.

        One without colours has a third of the bytes, and TensorBoard's checksum takes a while for each.
        """
        from PIL import Image
        from tensorboard.compat.proto.summary_pb2 import Summary

        file, (height, width, colours) = BytesIO(), picture.shape
        if (picture == picture[..., :1]).all():
            picture, colours = picture[..., 0], 1
        Image.fromarray(picture).save(file, "PNG", compress_level=1)
        image = Summary.Image(height=height, width=width, colorspace=colours, encoded_image_string=file.getvalue())
        self.writer.file_writer.add_summary(Summary(value=[Summary.Value(tag=name, image=image)]), step)

    def log_pr_curve(self, name: str, labels: Any, scores: Any, step: int) -> None:
        self.writer.add_pr_curve(name, labels, scores, step)

    def log_histogram(self, name: str, values: Any, step: int) -> None:
        self.writer.add_histogram(name, values, step)

    def log_graph(self, net: Any, inputs: Any) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's tracer is an old one
            self.writer.add_graph(net, inputs)

    def log_layout(self, layout: Layout) -> None:
        charts = {title: {name: ["Multiline", [*tags]] for name, tags in own.items()} for title, own in layout.items()}
        self.writer.add_custom_scalars(charts)

    def flush(self) -> None:
        self._begin()
        self._hand_over()
        self.writer.flush()

    def close(self, hparams: Mapping[str, HyperParameter], results: Mapping[str, float]) -> None:
        self.hparams |= hparams
        self._begin()
        if self.began:
            self.writer.file_writer.add_summary(self._sessions()[1])
        self.fail()

    def fail(self) -> None:
        self._hand_over()
        self.writer.close()

    def _hand_over(self) -> None:
        """Hand the points to SummaryWriter.

        Each event wakes its thread, which takes turns with training then: one by one, an event costs what several steps
        of a small net do.
        """
        from lockstep.private_api.torch import add_points

        for values, step, at in self.waiting:
            add_points(self.writer, values, step, at)
        self.waiting, self.flushed = [], time.monotonic()

    def _begin(self) -> None:
        if self.hparams and not self.began:
            self.began = True
            self.writer.file_writer.add_summary(self._sessions()[0])

    def _sessions(self) -> tuple[Any, Any]:
        """What says that the run has begun, with its hyper-parameters, and that it has ended well.

        Without the list of names that torch writes too: TensorBoard would take that of one run for all. What it calls a
        trial begins with the run's label, and is cut behind it: by itself it is the folder, from its root on.
        """
        from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
        from torch.utils.tensorboard.summary import hparams

        _, begun, ended = hparams(self.hparams, {})  # type: ignore[no-untyped-call]
        held = begun.value[0].metadata.plugin_data
        data = HParamsPluginData.FromString(held.content)
        data.session_start_info.group_name = self.trial
        held.content = data.SerializeToString()
        return begun, ended
