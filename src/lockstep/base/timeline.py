"""profiler=timeline: one trace of all ranks for Perfetto, by torch.profiler, with the phases of each step."""

import gzip
import json
import os
import re
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.profiler import ProfilerActivity, profile, schedule

from lockstep.base.files import TIMELINE, atomic_write
from lockstep.base.streams import notice

SKIPPED, STEPS = 2, 8  # optimizer steps: the first ones allocate memory and connect ranks
PATIENCE = 10.0  # seconds that rank 0 waits for the files of the others
STEP, COLLECTIVE = "ProfilerStep#", re.compile(r"c10d::(?!send|recv)")
Events = list[dict[str, Any]]


class Timeline:
    """`marks`: the latest phases, each with its begin and end by perf_counter. summary: of the merged trace."""

    def __init__(self, folder: Path, rank: int) -> None:
        self.folder, self.rank, self.summary = folder, rank, dict[str, Any]()
        self.marks = deque[tuple[str, float, float]](maxlen=10_000)

    def path(self, rank: int) -> Path:
        return self.folder / TIMELINE.replace("timeline", f"rank{rank}")

    def save(self, profiler: Any) -> None:
        """Write the events of this rank, its phases among them."""
        with TemporaryDirectory() as folder:
            profiler.export_chrome_trace(f"{folder}/trace.json")
            trace = json.loads(Path(folder, "trace.json").read_bytes())
        base, events = trace["baseTimeNanoseconds"], events_of_rank(trace["traceEvents"], self.rank)
        steps = [each for each in events if each["name"].startswith(STEP) and each["cat"] == "user_annotation"]
        begin, end = min(each["ts"] for each in steps), max(each["ts"] + each["dur"] for each in steps)
        offset = (time.time_ns() - base) / 1000 - time.perf_counter() * 1e6
        seconds, place = defaultdict[str, float](float), {"ph": "X", "cat": "phase", "pid": self.rank, "tid": "phases"}
        for phase, *span in self.marks:
            since, until = (min(max(at * 1e6 + offset, begin), end) for at in span)
            if until > since:
                events.append({**place, "name": phase, "ts": since, "dur": until - since})
                seconds[phase] += (until - since) / 1e6
        if n_steps := profiler.step_num - SKIPPED:
            write(self.path(self.rank), {"steps": n_steps, "seconds": seconds, "events": events})

    def merge(self, world_size: int) -> None:
        """Write the trace of all ranks whose files come in time; note the seconds of each rank by phase."""
        paths, deadline = [*map(self.path, range(world_size))], time.monotonic() + PATIENCE
        if not self.path(0).is_file():
            notice(f"{TIMELINE} was not written: no optimizer step follows the first {SKIPPED}")
            return
        while not all(path.is_file() for path in paths) and time.monotonic() < deadline:
            time.sleep(0.05)
        traces = {path: json.loads(gzip.decompress(path.read_bytes())) for path in paths if path.is_file()}
        ranks = [trace["events"] for trace in traces.values()]
        write(self.folder / TIMELINE, {"traceEvents": [*chain(*ranks), *flows(ranks)]})
        seconds = [traces[path]["seconds"] if path in traces else {} for path in paths]
        self.summary |= {"steps": traces[paths[0]]["steps"], "ranks": seconds}
        for rank, path in enumerate(paths):
            path.unlink(missing_ok=True)
            if path not in traces:
                notice(f"{TIMELINE} lacks rank {rank}, which has left no trace within {PATIENCE:g} s")


@contextmanager
def timeline(run_dir: str, rank: int, world_size: int, profiler: str | None) -> Iterator[Timeline | None]:
    """Record a few optimizer steps if `profiler` is timeline; then rank 0 writes the trace of all ranks."""
    if profiler != "timeline":
        yield None
        return
    recorded = Timeline(Path(run_dir), rank)
    recorded.path(rank).parent.mkdir(exist_ok=True)
    recorded.path(rank).unlink(missing_ok=True)
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # it reports a GPU that is not there
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]
    steps = schedule(wait=SKIPPED - 1, warmup=1, active=STEPS, repeat=1)
    with profile(activities=activities, schedule=steps, on_trace_ready=recorded.save) as running:
        hook = register_optimizer_step_post_hook(lambda *_: running.step())
        try:
            yield recorded
        finally:
            hook.remove()
    if rank == 0:
        recorded.merge(world_size)


def write(path: Path, content: Mapping[str, Any]) -> None:
    with atomic_write(path) as temporary:
        temporary.write_bytes(gzip.compress(json.dumps(content, separators=(",", ":")).encode(), compresslevel=5))


def events_of_rank(events: Events, rank: int) -> Events:
    """Return the events as those of the process `rank`; its flows, from forward to backward, stay its own."""
    named = {"process_name": {"name": f"rank {rank}"}, "process_sort_index": {"sort_index": rank}}
    names: Events = [{"ph": "M", "tid": 0, "ts": 0, "name": name, "args": each} for name, each in named.items()]
    shown = names + [each for each in events if not (each["ph"] == "M" and each["name"].startswith("process_"))]
    ids = ({"id": each["id"] * 10_000 + rank} if "id" in each else {} for each in shown)
    return [{"cat": "", **each, "pid": rank, **changed} for each, changed in zip(shown, ids, strict=True)]


def flows(ranks: Sequence[Events]) -> Iterator[dict[str, Any]]:
    """Yield the arrows that join the nth call of each collective over ranks, from the first rank to the last."""
    calls = defaultdict[tuple[str, int], Events](list)
    for events in ranks:
        counts = Counter[str]()
        called = [each for each in events if each["ph"] == "X" and COLLECTIVE.match(each["name"])]
        for event in sorted(called, key=lambda each: float(each["ts"])):
            counts[event["name"]] += 1
            calls[event["name"], counts[event["name"]]].append(event)
    for number, joined in enumerate(each for each in calls.values() if len(each) > 1):
        for place, event in enumerate(sorted(joined, key=lambda each: float(each["ts"]))):
            kind = {0: {"ph": "s"}, len(joined) - 1: {"ph": "f", "bp": "e"}}.get(place, {"ph": "t"})
            yield {**event, **kind, "cat": "collective", "id": number}
