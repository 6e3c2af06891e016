"""The command line: invalid input is one sentence and status 2, a failed rank its traceback and status 1."""

import os
import sys
import time
from pathlib import Path
from traceback import print_exception
from typing import NoReturn, cast

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from lockstep.command_line.compose import sets_folder
from lockstep.command_line.hydra_errors import explain
from lockstep.command_line.overrides import check_lists, swept_keys
from lockstep.conf import CONF
from lockstep.config_error import ConfigError, require, typed_command
from lockstep.fast_exit import exit_fast
from lockstep.job import execute, planning, prepare, run
from lockstep.launch.external_launcher import rank_from_env
from lockstep.launch.failure import (
    RankFailed,
    exit_now,
    is_debugged,
    let_rank_zero_print,
    print_exit_reason,
)
from lockstep.launch.signals import end_command, signal_handlers
from lockstep.launch.topology import RankContext
from lockstep.private_api.hydra import get_args_parser
from lockstep.run_files import Metrics
from lockstep.schemas import Command
from lockstep.streams import outlive_readers
from lockstep.sweep.outcome import clear_results, in_sweep, report_unfinished
from lockstep.targets.locate import UserCodeError

BEGAN = time.perf_counter()
FULL_ERRORS = "HYDRA_FULL_ERROR" in os.environ
"""Whether Hydra's errors, and unexpected ones, are shown with their tracebacks."""
FOLDER_KEYS = ("hydra.run.", "hydra.sweep.", "hydra.mode")


def main() -> None:
    """Run the command line, and end the process."""
    try:
        run_command()
    except SystemExit as ended:
        exit_fast(ended.code)
        raise
    exit_fast(0)


def run_command() -> None:
    """Run the jobs by Hydra; or one rank of one job, if torchrun, SLURM or mpirun started this process."""
    outlive_readers()
    if (folder := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, folder)  # as `python -m` does, so that modules in the working directory can be imported
    context = None
    try:
        context = rank_from_env()
        if context is not None:
            run_as_worker(sys.argv[1:])
        with signal_handlers(end_command):
            run_hydra(sys.argv[1:])
    except (ConfigError, RankFailed) as error:
        end(error, context)


def run_as_worker(arguments: list[str]) -> NoReturn:
    """Run this process's rank, and exit."""
    try:
        metrics = run(arguments)
    except SystemExit as ended:
        exit_now(ended.code if isinstance(ended.code, int) else 1)
    exit_now(1 if metrics.get("within_tolerance") is False else 0)


def run_hydra(arguments: list[str]) -> None:
    """Compose and run the jobs of a command.

    Raises:
        ConfigError: a flag, or an override that cannot be composed.
    """

    def fail(message: str) -> NoReturn:
        raise ConfigError(f"{message}; write flags that {typed_command()} --hydra-help lists, then KEY=VALUE.")

    parser, job = get_args_parser(), Job()
    parser.error = fail  # type: ignore[method-assign]
    parser.parse_args(arguments)
    try:
        os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra raises its errors, which it otherwise prints over several lines
        hydra.main(version_base="1.3", config_path=str(CONF), config_name="train")(job)()
    except (ConfigError, RankFailed):
        raise
    except Exception as error:
        if FULL_ERRORS or (job.count and not isinstance(error, HydraException | OmegaConfBaseException)):
            raise
        refusal = explain(error, arguments)
        raise refusal from refusal.__cause__
    finally:
        if not FULL_ERRORS:
            del os.environ["HYDRA_FULL_ERROR"]


class Job:
    """The function that Hydra calls for each job. `count`: how many jobs have begun."""

    count = 0

    def __call__(self, config: DictConfig) -> object:
        """Run the job, and return the `optimized_metric`, for sweepers that look for the best."""
        self.count += 1
        run_dir = Path(HydraConfig.get().runtime.output_dir)
        try:
            metrics = _run_job(config, run_dir)
        except (ConfigError, RankFailed) as error:
            if not in_sweep():
                end(error)
            report_unfinished(config, run_dir, error)
            return None
        if metrics.get("within_tolerance") is False and not in_sweep():
            raise SystemExit(1)
        return metrics.get(str(config.optimized_metric))


def _run_job(config: DictConfig, run_dir: Path) -> Metrics:
    overrides = HydraConfig.get().overrides
    hydra_words, words = (
        cast(list[str], OmegaConf.to_container(part, resolve=False)) for part in (overrides.hydra, overrides.task)
    )
    began, has_folder = time.perf_counter() if in_sweep() else BEGAN, sets_folder(hydra_words)
    with planning(words):
        check_lists(words, config)
        if in_sweep():
            resumes, hint = config.resume is True, "resume=true hydra.sweep.dir=FOLDER"
            require(has_folder or not resumes, "resume", True, "a sweep resumes in its own folder", hint)
            clear_results(run_dir, keep_metrics=resumes)
        plan = prepare(config, run_dir, has_folder or in_sweep(), _command(hydra_words, words))
    return execute(plan, began, keep_finished=in_sweep())


def _command(hydra_words: list[str], words: list[str]) -> Command:
    """Return what was typed for this job, without the folder, which another run of it would not have."""
    sources = HydraConfig.get().runtime.config_sources
    typed = [f"--config-dir={source.path}" for source in sources if source.provider == "command-line"]
    typed += [word for word in hydra_words if not word.startswith(FOLDER_KEYS)]
    return Command((*typed, *words), swept_keys(sys.argv[1:], words) if in_sweep() else ())


def end(error: ConfigError | RankFailed, context: RankContext | None = None) -> NoReturn:
    """Print the reason as the last line, and exit. A debugger gets the original error of the user's code."""
    if isinstance(error, UserCodeError) and error.__context__ is not None and is_debugged():
        raise error.__context__ from None
    if FULL_ERRORS and error.__cause__ is not None:
        print_exception(error.__cause__)
    print_exit_reason(str(error), context)
    let_rank_zero_print(context)
    raise SystemExit(2 if isinstance(error, ConfigError) else 1)
