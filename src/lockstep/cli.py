"""The manners of the command: bad input is one sentence and status 2, a failed rank its own traceback and status 1."""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from lockstep.compose import folder_given
from lockstep.explain import HYDRA_ERRORS, explained, without_plugin
from lockstep.folder import take_back
from lockstep.job import execute, run
from lockstep.launch import Place, RankFailed, leave, outside, say_last
from lockstep.launch.failure import told
from lockstep.refusal import Refusal, require
from lockstep.resume import run_folder
from lockstep.streams import outlive_readers
from lockstep.sweep import clear_results, in_sweep, report_unfinished

BEGAN = time.perf_counter()


def hydra_job(config: DictConfig) -> Any:
    """What Hydra calls for each job. Returns the `optimized_metric`, for sweepers that look for the best."""
    own = Path(HydraConfig.get().runtime.output_dir)
    began = time.perf_counter() if in_sweep() else BEGAN
    try:
        given = folder_given(HydraConfig.get().overrides.hydra)
        if in_sweep():
            why = "jobs go on in the folders that they have"
            require(given or config.resume is not True, "resume", True, why, "resume=true hydra.sweep.dir=FOLDER")
            clear_results(own, keep_metrics=config.resume)
        run_dir = run_folder(config.resume, config.name, own, given or in_sweep())
        metrics = execute(config, run_dir, began, keep_finished=in_sweep())
    except (Refusal, RankFailed) as error:
        if in_sweep():
            return report_unfinished(config, own, error)
        end(error)
    except SystemExit as ended:
        if (failed := failed_rank(ended)) is None or not in_sweep():
            raise
        return report_unfinished(config, own, failed)
    if metrics.get("as_owed") is False and not in_sweep():
        raise SystemExit(1)
    return metrics.get(config.optimized_metric) if config.optimized_metric else None


def failed_rank(ended: SystemExit) -> RankFailed | None:
    """What a rank that SLURM started has failed of and said: as a job of a sweep it has to leave that for the table."""
    place, cause = outside(), ended.__context__
    if place is None or not isinstance(cause, Exception):
        return None
    return RankFailed(place.rank, told(cause))


def command(hydra_main: Callable[[], None]) -> None:
    """Run the command line: by Hydra, or, started by torchrun or SLURM, as one rank of one job."""
    outlive_readers()
    place = None
    try:
        place = outside()
        if place is not None:
            as_guest(sys.argv[1:])
        else:
            by_hydra(hydra_main)
    except (Refusal, RankFailed) as error:
        end(error, place)
    except KeyboardInterrupt:
        raise SystemExit(130) from None


def as_guest(arguments: list[str]) -> None:
    if flags := [argument for argument in arguments if argument.startswith("-")]:
        raise Refusal(f"{flags[0]}: ranks that torchrun or SLURM started take KEY=VALUE only; write it without them.")
    try:
        metrics = run(arguments)
    except SystemExit as ended:
        leave(ended.code if isinstance(ended.code, int) else 1)
    leave(1 if metrics.get("as_owed") is False else 0)


def by_hydra(hydra_main: Callable[[], None]) -> None:
    """Hydra prints its errors over several lines and exits with 1, unless it is told to raise them."""
    if "HYDRA_FULL_ERROR" in os.environ:
        return hydra_main()
    require_flags(sys.argv[1:])
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        hydra_main()
    except HYDRA_ERRORS as error:
        raise explained(error, sys.argv[1:]) from None
    except RuntimeError as error:
        raise without_plugin(error) from None
    finally:
        take_back()
        del os.environ["HYDRA_FULL_ERROR"]


def require_flags(arguments: list[str]) -> None:
    """Refuse flags that Hydra does not know: argparse would print how it is used, over many lines."""

    def fail(message: str) -> NoReturn:
        raise Refusal(f"{message}; write flags that python train.py --hydra-help lists, then KEY=VALUE.")

    parser = get_args_parser()
    parser.error = fail  # type: ignore[method-assign]
    parser.parse_args(arguments)


def end(error: Refusal | RankFailed, place: Place | None = None) -> NoReturn:
    """Say why, last, and exit."""
    say_last(str(error), place)
    raise SystemExit(2 if isinstance(error, Refusal) else 1)
