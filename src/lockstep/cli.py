"""The command line: invalid input is one sentence and status 2, a failed rank its traceback and status 1."""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from traceback import print_exception
from typing import Any, NoReturn, cast

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from lockstep.command_line.compose import compose_job, folder_given
from lockstep.command_line.flags import require_flags
from lockstep.command_line.hydra_errors import HYDRA_ERRORS, OPTIONS, explained, unexpected_as_config_error
from lockstep.command_line.overrides import require_each_option, require_one_option, swept_keys, verbatim
from lockstep.command_line.run_dir import remove_empty_dirs
from lockstep.config_error import ConfigError, require
from lockstep.fast_exit import exit_fast
from lockstep.job import execute, planning, prepare, run
from lockstep.launch.debugger import is_debugged
from lockstep.launch.exit import exit_now, let_rank_zero_print, print_exit_reason
from lockstep.launch.external_launcher import rank_from_env
from lockstep.launch.failure import RankFailed, format_error
from lockstep.launch.stop_handler import signals_end_command
from lockstep.launch.topology import RankContext
from lockstep.schemas import Command
from lockstep.streams import outlive_readers
from lockstep.sweep import clear_results, in_sweep, report_unfinished
from lockstep.targets.locate import UserCodeError

BEGAN = time.perf_counter()
FULL_ERRORS = "HYDRA_FULL_ERROR" in os.environ
"""Whether Hydra's errors, and unexpected ones, are shown with their tracebacks."""

FOLDER_KEYS = ("hydra.run.", "hydra.sweep.", "hydra.mode")

JOBS: list[Path] = []
"""The folders of the jobs that have begun: errors from then on are not about overrides that cannot be read."""


def hydra_job(config: DictConfig) -> Any:
    """What Hydra calls for each job. Returns the `optimized_metric`, for sweepers that look for the best."""
    own = Path(HydraConfig.get().runtime.output_dir)
    JOBS.append(own)
    began = time.perf_counter() if in_sweep() else BEGAN
    try:
        own_words, task_words = words_of_job()
        given = folder_given(own_words)
        with planning(task_words):
            require_each_option(task_words, config)
            if in_sweep():
                reason = "jobs go on in the folders that they have"
                require(
                    given or config.resume is not True, "resume", True, reason, "resume=true hydra.sweep.dir=FOLDER"
                )
                clear_results(own, keep_metrics=bool(config.resume))
            plan = prepare(config, own, given or in_sweep(), asked_for(own_words, task_words))
        metrics = execute(plan, began, keep_finished=in_sweep())
    except (ConfigError, RankFailed) as error:
        if in_sweep():
            return report_unfinished(config, own, error)
        end(error)
    except SystemExit as ended:
        if (failed := failed_rank(ended)) is None or not in_sweep():
            raise
        return report_unfinished(config, own, failed)
    if metrics.get("within_tolerance") is False and not in_sweep():
        raise SystemExit(1)
    return metrics.get(plan.optimized_metric) if plan.optimized_metric else None


def words_of_job() -> tuple[list[str], list[str]]:
    """The overrides of Hydra's own keys, and of the job's, as they were typed: no ${…} in them is resolved."""
    overrides = HydraConfig.get().overrides
    hydra, task = (OmegaConf.to_container(words, resolve=False) for words in (overrides.hydra, overrides.task))
    return cast(list[str], hydra), cast(list[str], task)


def asked_for(own_words: list[str], task_words: list[str]) -> Command:
    """What this job was asked for, without the folder, which is another one the next time."""
    folders = [own.path for own in HydraConfig.get().runtime.config_sources if own.provider == "command-line"]
    words = [f"--config-dir={folder}" for folder in folders]
    words += [word for word in own_words if not word.startswith(FOLDER_KEYS)]
    return Command((*words, *task_words), swept_keys(sys.argv[1:], task_words) if in_sweep() else ())


def failed_rank(ended: SystemExit) -> RankFailed | None:
    """The failure of a rank that SLURM started, which as a job of a sweep has to leave it for the table."""
    context, cause = rank_from_env(), ended.__context__
    if context is None or not isinstance(cause, Exception):
        return None
    return RankFailed(context.rank, format_error(cause))


def command(hydra_main: Callable[[], None]) -> None:
    """Run the command line, and end the process."""
    try:
        run_command(hydra_main)
    except SystemExit as ended:
        exit_fast(ended.code)
        raise
    exit_fast(0)


def run_command(hydra_main: Callable[[], None]) -> None:
    """By Hydra, or, started by torchrun, SLURM or mpirun, as one rank of one job."""
    outlive_readers()
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)  # as under `python -m`: what lies in the command's folder can be imported
    context = None
    try:
        context = rank_from_env()
        if context is not None:
            run_as_worker(sys.argv[1:])
        with signals_end_command():
            by_hydra(hydra_main)
    except (ConfigError, RankFailed) as error:
        end(error, context)
    except KeyboardInterrupt:
        raise SystemExit(130) from None


def run_as_worker(arguments: list[str]) -> NoReturn:
    if flags := [argument for argument in arguments if argument.startswith("-")]:
        raise ConfigError(
            f"{flags[0]}: ranks that torchrun, SLURM or mpirun started take KEY=VALUE only; write it without them."
        )
    try:
        metrics = run(arguments)
    except SystemExit as ended:
        exit_now(ended.code if isinstance(ended.code, int) else 1)
    exit_now(1 if metrics.get("within_tolerance") is False else 0)


def by_hydra(hydra_main: Callable[[], None]) -> None:
    """Hydra prints its errors over several lines and exits with 1, unless HYDRA_FULL_ERROR makes it raise them."""
    flags = require_flags(sys.argv[1:])
    require_one_option(flags.overrides, OPTIONS)
    typed = sys.argv
    sys.argv = [typed[0], *verbatim(typed[1:], sweep=flags.multirun)]
    try:
        os.environ["HYDRA_FULL_ERROR"] = "1"
        hydra_main()
    except (ConfigError, RankFailed):
        raise
    except Exception as error:
        if FULL_ERRORS or (JOBS and not isinstance(error, HYDRA_ERRORS)):
            raise
        if JOBS:
            raise explained(error, typed[1:]) from None
        raise unexpected_as_config_error(error, typed[1:], compose_job)  # noqa: B904  # it knows its cause
    except SystemExit as ended:
        raise SystemExit(2 if ended.code == 1 and flags.package else ended.code) from None
    finally:
        sys.argv = typed
        remove_empty_dirs()
        if not FULL_ERRORS:
            del os.environ["HYDRA_FULL_ERROR"]


def end(error: ConfigError | RankFailed, context: RankContext | None = None) -> NoReturn:
    """Print the reason as the last line, and exit. Under a debugger an error of the user's code is raised as it was."""
    if isinstance(error, UserCodeError) and error.__context__ is not None and is_debugged():
        raise error.__context__ from None
    if FULL_ERRORS and error.__cause__ is not None:
        print_exception(error.__cause__)
    print_exit_reason(str(error), context)
    let_rank_zero_print(context)
    raise SystemExit(2 if isinstance(error, ConfigError) else 1)
