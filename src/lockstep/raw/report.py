"""What rank 0 shows and logs: an epoch's line or bar, and points on the curves, under Lightning's names."""

from collections.abc import Mapping

from lockstep.progress import epoch_line, shows_bar
from lockstep.run_bar import RunBar
from lockstep.session import Session
from lockstep.sums.running import BatchStats, RunningSums


class Report:
    """Every rank has one, because a loss over all ranks takes all of them; rank 0 alone shows and writes."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.plan = session.plan
        self.shows = session.context.rank == 0
        bar = self.shows and shows_bar(self.plan.trainer.enable_progress_bar)
        self.bar = RunBar(self.plan.max_epochs, self.plan.epoch_batches) if bar else None

    def begin(self, epoch: int, done: int) -> None:
        """An epoch begins, or goes on where so many of its batches are done."""
        self.session.curve.resume(self.session.curve.sums if done else RunningSums(self.plan.objective))
        if self.bar is not None:
            self.bar.begin(epoch, done)

    def batch(self, stats: BatchStats, step: int, rate: float | None) -> None:
        """A batch is done, and if there is a rate, optimizer step `step`. Every N steps: a point on each curve."""
        if self.bar is not None:
            self.bar.batch()
        if not self.plan.logger:
            return
        self.session.curve.add(stats)
        if rate is not None and step % self.plan.log_every_n_steps == 0:
            self.session.loggers.log_metrics(self.session.curve.point(rate), step)

    def epoch_line(self, epoch: int, metrics: Mapping[str, float], seconds: float) -> None:
        if self.bar is not None:
            self.bar.show(metrics)
        elif self.shows:
            print(epoch_line(epoch, self.plan.max_epochs, metrics, seconds), flush=True)

    def close(self) -> None:
        """Training ends, whatever ends it."""
        if self.bar is not None:
            self.bar.close()
