"""profiler=timeline: one trace of all ranks for Perfetto, by torch.profiler, with the phases of each step."""

import gzip
import json
import os
import re
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.profiler import ProfilerActivity, profile, schedule

from lockstep.base.files import TIMELINE, atomic_write
from lockstep.base.messages import gather_bytes
from lockstep.base.streams import notice

SKIPPED, STEPS = 2, 8  # optimizer steps: the first ones allocate memory and connect ranks
STEP, COLLECTIVE = "ProfilerStep#", re.compile(r"c10d::(?!send|recv)")
Events = list[dict[str, Any]]


class Timeline:
    """`marks`: the latest phases, each with its begin and end by perf_counter. summary: of the merged trace."""

    def __init__(self, rank: int) -> None:
        self.rank, self.trace, self.summary = rank, dict[str, Any](), dict[str, Any]()
        self.marks = deque[tuple[str, float, float]](maxlen=10_000)

    def keep(self, profiler: Any) -> None:
        """Keep the events of this rank, its phases among them."""
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
            self.trace = {"steps": n_steps, "seconds": seconds, "events": events}

    def merge(self, folder: Path) -> None:
        """Write the trace of all ranks, by rank 0; note the seconds of each rank by phase."""
        messages = gather_bytes(compressed(self.trace))
        traces = [json.loads(gzip.decompress(message)) for message in messages]
        if traces and not all(traces):
            notice(f"{TIMELINE} was not written: no optimizer step follows the first {SKIPPED}")
        elif traces:
            ranks = [trace["events"] for trace in traces]
            (folder / TIMELINE).parent.mkdir(exist_ok=True)
            with atomic_write(folder / TIMELINE) as temporary:
                temporary.write_bytes(compressed({"traceEvents": [*chain(*ranks), *flows(ranks)]}))
            self.summary |= {"steps": traces[0]["steps"], "ranks": [trace["seconds"] for trace in traces]}


@contextmanager
def timeline(run_dir: str, rank: int, profiler: str | None) -> Iterator[Timeline | None]:
    """Record a few optimizer steps if `profiler` is timeline; then rank 0 writes the trace of all ranks."""
    if profiler != "timeline":
        yield None
        return
    recorded = Timeline(rank)
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # it reports a GPU that is not there
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]
    steps = schedule(wait=SKIPPED - 1, warmup=1, active=STEPS, repeat=1)
    with profile(activities=activities, schedule=steps, on_trace_ready=recorded.keep) as running:
        hook = register_optimizer_step_post_hook(lambda *_: running.step())
        try:
            yield recorded
        finally:
            hook.remove()
    recorded.merge(Path(run_dir))


def compressed(content: Any) -> bytes:
    return gzip.compress(json.dumps(content, separators=(",", ":")).encode(), compresslevel=5)


def events_of_rank(events: Events, rank: int) -> Events:
    """Return the events as those of the process `rank`; its flows, from forward to backward, stay its own."""
    named = {"process_name": {"name": f"rank {rank}"}, "process_sort_index": {"sort_index": rank}}
    names: Events = [{"ph": "M", "tid": 0, "ts": 0, "name": name, "args": each} for name, each in named.items()]
    shown = names + [each for each in events if not (each["ph"] == "M" and each["name"].startswith("process_"))]
    ids = ({"id": each["id"] * 10_000 + rank} if "id" in each else {} for each in shown)
    return [{"cat": "", **each, "pid": rank, **changed} for each, changed in zip(shown, ids, strict=True)]


def flows(ranks: Sequence[Events]) -> Iterator[dict[str, Any]]:
    """Yield the arrows that join the nth call of each collective over ranks, in the order in which ranks call it."""
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
