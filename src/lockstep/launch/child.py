"""One question answered in a process of its own, before any rank starts: there code of the user's may be imported.

The process is a copy of the fork server, so torch is there already; the server itself never imports such code.
"""

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from lockstep.config_error import ConfigError
from lockstep.launch.failure import exit_reason, format_error
from lockstep.launch.forkserver import ensure_forkserver, start_method
from lockstep.launch.preserved_process import hide_main_module
from lockstep.launch.private_dir import own_caches, private_folder
from lockstep.launch.signals import ENDING
from lockstep.launch.worker import exit_with_parent
from lockstep.streams import outlive_readers
from lockstep.targets.main_module import pickled_main, restore_main

KILL_TIMEOUT = 10.0
"""Seconds within which a process is gone after SIGKILL."""


def in_child(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a module's function returns, called in a child of the fork server with this process's environment.

    It may take as long as it takes: the process is watched.

    Raises:
        ConfigError: what the function raises of this kind, or its process died.
        RuntimeError: it raised something else, that nobody foresaw.
    """
    ensure_forkserver()
    context: Any = multiprocessing.get_context(start_method())
    reader, writer = context.Pipe(duplex=False)
    variables = {**own_caches(), **os.environ}
    main = pickled_main(arguments)
    process = context.Process(
        target=_answer, args=(writer, private_folder(), variables, [*sys.path], main, function, arguments)
    )
    with reader, writer, hide_main_module():
        process.start()
        writer.close()
        try:
            wait([reader, process.sentinel])
            answer = None
            with suppress(EOFError):  # it ended without an answer
                answer = reader.recv() if reader.poll() else None
        except BaseException:
            with suppress(ProcessLookupError):
                process.kill()
            raise
        finally:
            process.join(KILL_TIMEOUT)
    if answer is None:
        ended = exit_reason(process.exitcode or 0)
        raise ConfigError(f"The process that imports your code has failed: {ended}; mend the code.")
    result, error = answer
    if error is not None:
        raise error
    return result


def _answer(
    answers: Connection,
    folder: Path,
    variables: Mapping[str, str],
    path: list[str],
    main: bytes | None,
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
) -> None:
    for number in ENDING:  # the command ends this process
        signal.signal(number, signal.SIG_IGN)
    outlive_readers()
    exit_with_parent(folder)
    os.environ.clear()
    os.environ.update(variables)
    sys.path[:] = path
    answer: tuple[Any, Exception | None]
    try:
        restore_main(main)
        answer = function(*arguments), None
    except ConfigError as error:
        answer = None, error
    except SystemExit as ended:
        answer = None, ConfigError(f"Your code calls sys.exit({ended.code!r}) while it is imported; mend the code.")
    except Exception as error:
        answer = None, RuntimeError(format_error(error))
    answers.send(answer)
