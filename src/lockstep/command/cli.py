"""The command line: invalid input is one sentence and status 2, a failed rank its traceback and status 1."""

import os
import sys
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn, cast

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from lockstep.base.config_error import ConfigError, typed_command
from lockstep.base.files import CONF
from lockstep.base.private_api.hydra import get_args_parser
from lockstep.command.compose import check_words, sets_folder, swept_keys, user_folder
from lockstep.command.entry_point import FULL_ERRORS, exit_fast, run_command
from lockstep.command.hydra_errors import planning
from lockstep.command.job import execute, prepare, run, with_earlier_words
from lockstep.launch.external_launcher import rank_from_env
from lockstep.launch.failure import RankFailed, print_exit_reason
from lockstep.plan.schemas import Command
from lockstep.runs.run_files import Metrics
from lockstep.runs.sweep.summary import clear_results, in_sweep, report_unfinished, value_of_trial

BEGAN = time.perf_counter()
HYDRA_KEYS = ("hydra.run.", "hydra.sweep", "hydra/sweeper", "hydra.launcher", "hydra/launcher", "hydra.mode")
"""Beginnings of the overrides that another run of a job leaves out: its folder, and what belongs to a sweep."""


def main() -> None:
    try:
        status: Any = run_command(train, sys.argv[1:])
    except SystemExit as ended:
        status = ended.code
    exit_fast(status)
    if status:
        raise SystemExit(status)


def train(arguments: Sequence[str]) -> int:
    """Run the jobs by Hydra; or one rank of one job, if torchrun or SLURM started this process."""
    if (folder := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, folder)  # as `python -m` does, so that modules in the working directory can be imported
    if rank_from_env() is not None:
        return int(run([*arguments]).get("within_tolerance") is False)
    run_hydra([*arguments])
    return 0


def run_hydra(arguments: list[str]) -> None:
    """Compose and run the jobs of a command; raise the error of the only job."""

    def fail(message: str) -> NoReturn:
        hint = f"flags that {typed_command()} --hydra-help lists, then KEY=VALUE without dashes"
        raise ConfigError(f"{message}; write {hint}.")

    parser, job = get_args_parser(), Job()
    parser.error = fail  # type: ignore[method-assign]
    typed = parser.parse_intermixed_args(arguments)
    if typed.config_dir is None and (folder := user_folder()) is not None:
        arguments = [f"--config-dir={folder}", *arguments]
    folders = (Path(word.partition("=")[2]) for word in typed.overrides if word.startswith("hydra.run.dir="))
    job.older = {folder.absolute() for folder in folders if folder.is_dir()}
    flags = [word for word in arguments if word not in typed.overrides]
    try:
        sys.argv[1:] = [*flags, *(word for word in with_earlier_words(arguments) if word not in flags)]
        os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra raises its errors, which it otherwise prints over several lines
        hydra.main(version_base="1.3", config_path=str(CONF), config_name="train")(job)()
    except (ConfigError, RankFailed):
        raise
    except Exception as error:
        if FULL_ERRORS or (job.count and not isinstance(error, HydraException | OmegaConfBaseException)):
            raise
        with planning(arguments):
            raise
    finally:
        os.environ.pop("HYDRA_FULL_ERROR", None)
    if job.error is not None:
        raise job.error


class Job:
    """The function that Hydra calls for each job.

    count: how many jobs have begun. error: of the only job. older: folders that were there before the command.
    """

    count = 0
    older: Collection[Path] = ()
    error: ConfigError | RankFailed | None = None

    def __call__(self, config: DictConfig) -> object:
        """Run the job, and return the `optimized_metric`, for sweepers that look for the best."""
        self.count += 1
        run_dir = Path(HydraConfig.get().runtime.output_dir)
        try:
            metrics = _run_job(config, run_dir)
        except (ConfigError, RankFailed) as error:
            if in_sweep():
                report_unfinished(config, run_dir, error)
            else:
                self.error = error  # Hydra would print a line about it
            return None
        finally:
            with suppress(OSError):  # Hydra has created a folder, which stays if a run has left something there
                if run_dir not in self.older:
                    os.removedirs(os.path.relpath(run_dir))
        if metrics.get("within_tolerance") is False and not in_sweep():
            raise SystemExit(1)
        try:
            return value_of_trial(config.optimized_metric, metrics, HydraConfig.get().sweeper)
        except ConfigError as error:  # raised, it would end a trial, and not the search
            print_exit_reason(str(error), None)
            raise SystemExit(2) from None


def _run_job(config: DictConfig, run_dir: Path) -> Metrics:
    hydra_config = HydraConfig.get()
    overrides = (hydra_config.overrides.hydra, hydra_config.overrides.task)
    hydra_words, words = (cast(list[str], OmegaConf.to_container(part, resolve=False)) for part in overrides)
    began, has_folder = time.perf_counter() if in_sweep() else BEGAN, sets_folder(hydra_words)
    sources = [each.path for each in hydra_config.runtime.config_sources if each.provider == "command-line"]
    typed = [f"--config-dir={path}" for path in sources]
    typed += [word for word in hydra_words if not word.startswith(HYDRA_KEYS)]
    command = Command((*typed, *words), swept_keys(sys.argv[1:], words) if in_sweep() else ())
    with planning(words):
        check_words(words, config)
        if in_sweep():
            clear_results(run_dir, keep_metrics=config.resume is True)
        plan = prepare(config, run_dir, has_folder or in_sweep(), command)
    return execute(plan, began, keep_finished=in_sweep())
