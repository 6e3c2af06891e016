"""Messages name the command that was typed."""

import pytest

from lockstep.config_error import typed_command


@pytest.mark.parametrize(
    ("program", "command"),
    [
        ("/home/me/checkout/train.py", "python train.py"),
        ("/venv/bin/lockstep", "lockstep"),
        ("/venv/lib/python3.12/site-packages/lockstep/__main__.py", "python -m lockstep"),
        ("/venv/bin/pytest", "python train.py"),
    ],
)
def test_by_the_program_that_runs(program: str, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", [program, "profiler=x"])
    assert typed_command() == command
