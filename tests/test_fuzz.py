"""Thousands of random overrides: each is refused in one sentence, or the plan has what was asked for.

Seeded by the date, which is printed; LOCKSTEP_FUZZ_SEED=N repeats a day's, LOCKSTEP_FUZZ=N takes more of them.
"""

import datetime
import os
import re
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import pytest

from lockstep.command_line.compose import compose_job
from lockstep.conf import CONF
from lockstep.config_error import ConfigError
from lockstep.job import planning, prepare
from tests import fuzz_overrides

SEED = int(os.environ.get("LOCKSTEP_FUZZ_SEED", datetime.date.today().strftime("%Y%m%d")))
COUNT = int(os.environ.get("LOCKSTEP_FUZZ", "2000"))
DERIVED = (
    *("experiment", "batch_size_per_device", "scale_lr"),
    *("trainer.fast_dev_run", "trainer.barebones", "trainer.overfit_batches"),
)
"""Keys that change others, so that a plan may differ from another override."""


def option_name(key: str, value: object) -> object:
    """Return the class of an option that is an import path, else its name."""
    path = CONF / key / f"{value}.yaml"
    target = re.search(r"^ *_target_: .*?(\w+)$", path.read_text(), re.MULTILINE) if path.is_file() else None
    return target[1] if target else value


def outcome(words: list[str]) -> str:
    """Return what becomes of overrides on their way to a plan, as in job.py."""
    try:
        with planning(words):
            plan = prepare(*compose_job(words), has_folder=True)
    except ConfigError as raised:
        return f"refused: {raised}"
    if not any(word.lstrip("+~").startswith(DERIVED) for word in words):
        last = {word.partition("=")[0].lstrip("+"): word for word in words}
        for key, value in filter(None, map(fuzz_overrides.wanted, last.values())):
            planned = fuzz_overrides.value_at(asdict(plan), key)
            if planned != value and str(planned) not in (str(value), str(option_name(key, value))):
                return f"wrong: {key} is {planned}"
    return "right"


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_random_overrides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    ends: Counter[str] = Counter()
    number = SEED * 10**6
    while ends.total() < COUNT:
        words, number = fuzz_overrides.overrides(number), number + 1
        end = outcome(words)
        kind = end.partition(":")[0]
        ends.update([kind] * len(words))
        assert kind != "wrong", (number - 1, words, end)
        assert "\n" not in end, (number - 1, words, end)
        assert "Traceback" not in end
    with capsys.disabled():
        print(f"\nLOCKSTEP_FUZZ_SEED={SEED}: {dict(ends)}")
    assert list(tmp_path.iterdir()) == []
    assert ends["right"] > COUNT // 50
