"""The SimpleCNN's arithmetic and memory traffic, counted, over the time of a step, beside what the machine can do."""

from lockstep import launch
from lockstep.bench.roofline_work import Counts, Step
from lockstep.bench.row import Row
from lockstep.bench.setting import Setting
from lockstep.bench.training import Way, cnn_part, engine, rows

COUNTS = "lockstep.bench.counting"
MATRIX = 4096
COPIED = 2**28

WAYS = {
    "bare, contiguous": (Way("bare"), "float32"),
    "raw": (engine("raw"), "float32"),
    "raw bf16": (engine("raw", "precision=bf16-mixed"), "bf16"),
}
"""Each way, and the precision that it computes in."""


def roofline(setting: Setting) -> list[Row]:
    """Rates of each way against the machine's own: a matrix product of the same precision, and a copy in memory."""
    batch_size, samples = setting.pick(500, 2000), setting.pick(1000, 10_000)
    shared = (*cnn_part(setting, 1000, 10_000), f"batch_size={batch_size}")
    setting.say("counting")
    with setting.folder() as folder:
        step = Step(setting.plan(folder, *shared), setting.pick(MATRIX // 2, MATRIX), COPIED)
        counts: Counts = launch.start(step, COUNTS)
    timed = rows("roofline", {name: way for name, (way, _) in WAYS.items()}, shared, setting, samples, dear=True)
    found = []
    for kind, peak in counts.peak.items():
        work = counts.work[kind]
        found.append(Row("roofline", f"work of a sample, {kind}", "MFLOP", (work.flops / 1e6,)))
        found.append(Row("roofline", f"traffic of a sample, {kind}", "MB", (work.traffic / 1e6,)))
        found.append(Row("roofline", f"matmul {kind}", "GFLOP/s", (peak / 1e9,)))
    found.append(Row("roofline", "copy", "GB/s", (counts.copy / 1e9,)))
    for row in timed:
        kind = WAYS[row.way][1]
        work = counts.work[kind]
        pairs = (
            ("GFLOP/s", f"matmul {kind}", work.flops, counts.peak[kind]),
            ("GB/s", "copy", work.traffic, counts.copy),
        )
        for unit, name, amount, peak in pairs:
            rates = tuple(speed * amount / 1e9 for speed in row.values)
            found.append(Row("roofline", row.way, unit, rates, name, (peak / 1e9,) * len(rates)))
    return found
