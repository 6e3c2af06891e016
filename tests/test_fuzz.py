"""A thousand random overrides: each is refused in one sentence, or the plan has what was asked for.

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
import yaml
from omegaconf import DictConfig, OmegaConf

from lockstep.base.config_error import ConfigError
from lockstep.base.files import CONF
from lockstep.command.compose import OPTIONS, compose_job
from lockstep.command.hydra_errors import planning
from lockstep.command.job import prepare
from lockstep.plan.schemas.groups import GROUPS, SEVERAL

SEED = int(os.environ.get("LOCKSTEP_FUZZ_SEED", datetime.date.today().strftime("%Y%m%d")))
COUNT = int(os.environ.get("LOCKSTEP_FUZZ", "1000"))
DERIVED = (
    *("experiment", "batch_size_per_device", "scale_lr"),
    *("trainer.fast_dev_run", "trainer.barebones", "trainer.overfit_batches"),
)
"""Keys that change others, so that a plan may differ from another override."""


def _words(text: str) -> list[str]:
    return text.split()


LIKELY = _words("1 2 4 8 0.5 0.01 1e-3 true false null [8] [16,8] auto cpu batch raw")
HUGE = ["9" * 400, "9" * 5000, "0." + "0" * 400 + "1", *_words(f"1e308 1e309 -1e400 {2**63} {2**31}")]
NUMBERS = _words("0 1 2 3 7 64 -1 1.5 1e3 1_000 0x10 0b1 007 +5 -0 nan inf .5")
WORDS = ["", *_words("true false null yes no on off None abc a/b .. ../x / ~ ~x %s")]
TEXT = ["größe", "日本", "a b", "'a b'", '"a b"', "'", '"', "'a", "a'b", "\\", "a\\", "a\nb", "'a\nb'", "\t"]
LONG = ["é" * 300, "n" * 5000, "[" * 60 + "]" * 60, "{a:" * 40 + "1" + "}" * 40, "[" * 3000]
SHAPES = _words("[] [1] [1,2] [[1]] [a,b] [true] [null] {} {a:1} {a:{b:[1]}} [1 {a: [ ( [-1]")
LOOKUPS = _words(
    "${seed} ${nope} ${name} ${model.net.hidden} ${oc.env:NOPE} ${now:%d} ${now:} ${ ${} ${ranks_of:1} $ $(x)"
)
SWEEPS = _words("1,2 a,b range(3) choice(1,2) interval(0,1) glob(m*) shuffle(1,2) int(3.7) bool(x) int( foo(1)")
VALUES = [HUGE, NUMBERS, WORDS, TEXT, LONG, SHAPES, LOOKUPS, SWEEPS]


def _known_keys() -> list[str]:
    """Return every key that may be typed: groups, keys of their options, and the other keys of train.yaml."""
    values = yaml.safe_load((CONF / "train.yaml").read_text())
    keys = [*(key for key in values if key not in ("defaults", "hydra")), *OPTIONS]
    keys += [f"{key}.{name}" for key, value in values.items() if isinstance(value, dict) for name in value]
    for group in GROUPS:
        for option in OPTIONS[group]:
            prefix = f"{group}.{option}" if group in SEVERAL else group
            names = yaml.safe_load((CONF / group / f"{option}.yaml").read_text())
            keys += [f"{prefix}.{name}" for name in names if name != "name"]
    return [*dict.fromkeys(key for key in keys if not key.startswith("hydra."))]


KNOWN = _known_keys()
ODD = _words("""
    hydra.run.dir hydra.sweep.dir hydra.sweep.subdir hydra.job.name hydra.mode hydra.searchpath hydra/launcher
    hydra/sweeper hydra.job.chdir hydra hydra.output_subdir hydra/help hydra.callbacks hydra.nope a a.b.c devicez
    max_steps model.nope optimizer größe a-b 1 _ a..b .a model@x model@_global_ @x model/mlp /model seed.x
    model.net.hidden.0 model.net.hidden[0] data.name.x""")
KEYS = [*ODD, "", "x" * 300]


def random_overrides(number: int) -> list[str]:
    """Return one to four overrides that follow from the number."""
    chance = random.Random(number)
    if chance.random() < 0.3:  # nothing odd: most of these make a plan
        keys = [key for key in KNOWN if OmegaConf.select(defaults(), key) is not None]
        return [f"{key}={_likely(key, chance)}" for key in chance.sample(keys, 2)]
    return [_override(chance) for _ in range(chance.choice((1, 1, 1, 2, 3, 4)))]


def _override(chance: random.Random) -> str:
    key = chance.choice(KNOWN if chance.random() < 0.75 else KEYS)
    if key in GROUPS and chance.random() < 0.1:
        key = f"{key}.name"
    value = _likely(key, chance) if chance.random() < 0.6 else chance.choice(chance.choice(VALUES))
    if chance.random() < 0.05:  # a slip of the finger
        at = chance.randrange(len(key) + 1)
        key = key[:at] + chance.choice("_.=@+~ x") + key[at + 1 :]
    if chance.random() < 0.1:
        value = f"[{value},{chance.choice(NUMBERS)}]"
    before = chance.choice(("",) * 12 + ("+", "++", "~", "-"))
    return before + key if before == "~" and chance.random() < 0.5 else f"{before}{key}={value}"


def _likely(key: str, chance: random.Random) -> str:
    """Return a value of the type that the key has by default."""
    if key in OPTIONS:
        return chance.choice(OPTIONS[key])
    kinds: dict[type, list[str]] = {bool: ["true", "false"], int: ["1", "2", "4", "8"], float: ["0.5", "0.01", "1e-3"]}
    return chance.choice(kinds.get(type(OmegaConf.select(defaults(), key)), LIKELY) if key in KNOWN else LIKELY)


@cache
def defaults() -> DictConfig:
    return compose_job([])[0]


def planned_wrongly(word: str, plan: dict[str, Any]) -> bool:
    """Whether a plan has another value for a whole number or an option that an override names."""
    key, _, value = word.lstrip("+").partition("=")
    if key in OPTIONS and value in OPTIONS[key]:
        targets = re.findall(r"^ *_target_: .*?(\w+)$", (CONF / key / f"{value}.yaml").read_text(), re.MULTILINE)
        if key not in plan:  # optimizer and scheduler are arguments of the module
            return False
        options = plan[key] if key in SEVERAL else [plan[key]]
        names = ", ".join(option["name"] for option in options) or "none"
        return names not in (value, *targets)
    if key not in KNOWN or key.startswith(SEVERAL) or not re.fullmatch(r"0|[1-9]\d{0,13}", value):
        return False
    planned = OmegaConf.select(OmegaConf.create(plan), key)
    return planned != int(value) and str(planned) != value


def outcome(words: list[str]) -> str:
    """Return what becomes of overrides on their way to a plan, as in job.py."""
    try:
        with planning(words):
            plan = prepare(*compose_job(words), has_folder=True)
    except ConfigError as raised:
        return f"refused: {raised}"
    if any(word.lstrip("+~").startswith(DERIVED) for word in words):
        return "right"
    last = {word.partition("=")[0].lstrip("+"): word for word in words}
    wrong = [word for word in last.values() if planned_wrongly(word, asdict(plan))]
    return f"wrong: {wrong}" if wrong else "right"


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_random_overrides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    ends: Counter[str] = Counter()
    number = SEED * 10**6
    while ends.total() < COUNT:
        words, number = random_overrides(number), number + 1
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
