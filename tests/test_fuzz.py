"""Random overrides, others each day: each is refused in one sentence, or the plan has what was asked for.

Seeded by the date, which is printed; LOCKSTEP_FUZZ_SEED=N repeats a day's, LOCKSTEP_FUZZ=N takes more of them.
"""

import datetime
import os
import random
import re
from collections import Counter
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from lockstep.base.config_error import ConfigError
from lockstep.command.compose import OPTIONS, compose_job
from lockstep.command.hydra_errors import planning
from lockstep.command.job import prepare
from lockstep.plan.schemas.groups import SEVERAL, leaves

SEED = int(os.environ.get("LOCKSTEP_FUZZ_SEED", datetime.date.today().strftime("%Y%m%d")))
COUNT = int(os.environ.get("LOCKSTEP_FUZZ", "30"))
DERIVED = ("experiment", "debug", "batch_size", "scale_lr", "trainer.fast_dev_run", "trainer.overfit", "trainer.bareb")
"""Beginnings of keys from which values of other keys are derived, or whose own values are."""
PLAIN = """0 1 2 4 8 -1 1.5 0.01 1e3 1_000 0x10 nan inf true false null abc a/b .. ~ %s [] [1] [a,b] {} {a:1} [1 {a: (
    1,2 ${seed} ${nope} ${oc.env:NOPE} ${ $ range(3) interval(0,1) glob(m*) int(3.7) int( foo(1)"""
STRANGE = (
    "",
    "größe",
    "a b",
    "'a b'",
    '"a',
    "\\",
    "a\nb",
    "\t",
    "é" * 300,
    "n" * 5000,
    "[" * 60 + "]" * 60,
    str(10**30),
)
ODD_VALUES = [*PLAIN.split(), *STRANGE]
KEYS = """hydra.run.dir hydra.sweep.dir hydra.job.name hydra.mode hydra.searchpath hydra/launcher hydra hydra.nope a
    a.b.c devicez max_steps model.nope größe a-b 1 _ a..b .a model@x @x model/mlp /model seed.x data.name.x"""
ODD_KEYS = [*KEYS.split(), "model.net.hidden.0", "model.net.hidden[0]", "", "x" * 300]


@cache
def defaults() -> dict[str, Any]:
    """Return every key of the default configuration with its value."""
    return dict(leaves(OmegaConf.to_container(compose_job([])[0], resolve=False))) | dict.fromkeys(OPTIONS)


LIKELY = {bool: ("true", "false"), int: ("1", "2", "4", "8"), float: ("0.5", "0.01", "1e-3")}


def random_override(chance: random.Random, is_odd: bool) -> str:
    """Return an override whose key and value are likely to be valid, or odd."""
    key = chance.choice([*defaults()] if chance.random() < 0.8 else ODD_KEYS)
    likely = OPTIONS.get(key) or LIKELY.get(type(defaults().get(key)), ())
    if not is_odd:
        return f"{key}={chance.choice(likely)}" if likely else f"seed={chance.randrange(9)}"
    value = chance.choice(likely if likely and chance.random() < 0.6 else ODD_VALUES)
    if chance.random() < 0.05:  # a slip of the finger
        at = chance.randrange(len(key) + 1)
        key = key[:at] + chance.choice("_.=@+~ x") + key[at + 1 :]
    return f"{chance.choice(('',) * 12 + ('+', '++', '~', '-'))}{key}={value}"


def planned_wrongly(word: str, plan: dict[str, Any]) -> bool:
    """Whether a plan has another value for a whole number or an option that an override names."""
    key, _, value = word.lstrip("+").partition("=")
    if key in ("engine", "strategy") and value in OPTIONS[key]:
        return bool(plan[key]["name"] != value)
    if key not in defaults() or key.startswith(SEVERAL) or not re.fullmatch(r"0|[1-9]\d{0,13}", value):
        return False
    planned = OmegaConf.select(OmegaConf.create({**plan, "config": ""}), key)
    return planned is not None and planned != int(value) and str(planned) != value


def outcome(words: list[str]) -> str:
    """Return what becomes of overrides on their way to a plan, as in job.py."""
    try:
        with planning(words):
            plan = asdict(prepare(*compose_job(words), has_folder=True))
    except ConfigError as raised:
        return f"refused: {raised}"
    last = {word.partition("=")[0].lstrip("+"): word for word in words}
    is_derived = any(word.lstrip("+~").startswith(DERIVED) for word in words)
    wrong = [word for word in last.values() if not is_derived and planned_wrongly(word, plan)]
    return f"wrong: {wrong}" if wrong else "right"


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_random_overrides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    ends: Counter[str] = Counter()
    for number in range(SEED * 10**6, SEED * 10**6 + COUNT):
        chance = random.Random(number)
        is_odd = chance.random() < 0.7
        words = [random_override(chance, is_odd) for _ in range(chance.choice((1, 1, 2, 4)))]
        end = outcome(words)
        ends.update([end.partition(":")[0]])
        assert not end.startswith("wrong"), (number, words, end)
        assert "\n" not in end, (number, words, end)
        assert "Traceback" not in end
    with capsys.disabled():
        print(f"\nLOCKSTEP_FUZZ_SEED={SEED}: {dict(ends)}")
    assert list(tmp_path.iterdir()) == []
    assert ends["right"] > COUNT // 20
