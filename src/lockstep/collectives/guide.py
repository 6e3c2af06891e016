"""The tour from its start to its last line: start the ranks, judge what they saw, print it and leave it as files."""

from pathlib import Path

from lockstep import launch
from lockstep.collectives.judge import rows
from lockstep.collectives.primitives import PRIMITIVES
from lockstep.collectives.ranks import Report
from lockstep.collectives.table import bench_text, fit_text, tour_text
from lockstep.collectives.tour import Work
from lockstep.config_error import config_error
from lockstep.files import save_table
from lockstep.text_table import terminal_width

ENGINE = "lockstep.collectives.ranks"


def guide(work: Work, engine: str = ENGINE) -> int:
    """Exit status 1 if some rank does not hold what theory says."""
    world, folder, speaker = work.world, Path(work.world.folder), launch.is_rank_zero(launch.rank_from_env())
    if speaker:
        make(folder)
    with launch.external_process_group(world):
        report: Report = launch.start(work, engine)
    table = rows(PRIMITIVES, report.seen, world.world_size, work.tour.root, world.backend)
    failed = [row for row in table if row.theory == "fails"]
    if speaker:
        print(tour_text(table, terminal_width()), flush=True)
        save_table(folder / "tour.csv", [row.cells() for row in table])
        if report.timings:
            benchmark(report, folder)
        held = sum(row.theory == "holds" for row in table)
        named = f" ({', '.join(dict.fromkeys(row.primitive for row in failed))})" if failed else ""
        print(f"\ntheory holds in {held} rows and fails in {len(failed)}{named}\n  {folder}", flush=True)
    return 1 if failed else 0


def benchmark(report: Report, folder: Path) -> None:
    """The measured times and the lines through them: two tables, two files and a picture."""
    from lockstep.collectives.fit import fits
    from lockstep.collectives.picture import draw

    lines = fits(report.timings)
    save_table(folder / "bench.csv", [timing.cells() for timing in report.timings])
    save_table(folder / "fit.csv", [line.cells() for line in lines])
    draw(report.timings, lines, folder / "bench.png")
    print(f"\n{bench_text(report.timings)}\n\n{fit_text(lines)}", flush=True)


def make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = f"the tour's folder cannot be made ({error.strerror})"
        raise config_error("logs/collectives", folder, why, "the command in a folder where it can") from None
