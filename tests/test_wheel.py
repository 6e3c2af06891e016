"""A wheel has all that the command needs: installed in an environment of its own, away from any checkout."""

import importlib.metadata
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, Command

BUILT_FROM = ("src", "conf", "pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE")

PIP = ("-m", "pip", "--disable-pip-version-check", "--quiet")
OFFLINE = ("--no-index", "--no-build-isolation")


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install the wheel in a new environment beside the packages of this one; return its folder of commands."""
    if missing := [name for name in ("pip", "setuptools") if not [*importlib.metadata.distributions(name=name)]]:
        pytest.skip(f"needs {missing[0]} to build and install a wheel")
    monkeypatch.delenv("PYTHONPATH", raising=False)  # it may name a checkout
    tree, wheels, environment = tmp_path / "tree", tmp_path / "wheels", tmp_path / "environment"
    (tree / "tests").mkdir(parents=True)
    shutil.copy(ROOT / "tests" / "test_example.py", tree / "tests")
    for name in BUILT_FROM:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy(ROOT / name, tree)
    pip = [sys.executable, *PIP]
    build = [*pip, "wheel", "--no-deps", *OFFLINE, "--wheel-dir", str(wheels), str(tree)]
    subprocess.run(build, check=True, timeout=180, capture_output=True)
    shutil.rmtree(tree)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True, timeout=180)
    [packages] = environment.glob("lib/python*/site-packages")
    others = [path for path in sys.path if path.endswith("-packages")]  # their own .pth files are not read
    (packages / "others.pth").write_text("\n".join(others))
    [wheel] = wheels.glob("*.whl")
    pip += ["--python", str(environment / "bin" / "python")]
    subprocess.run([*pip, "install", "--no-deps", *OFFLINE, str(wheel)], check=True, timeout=180, capture_output=True)
    return environment / "bin"


@pytest.mark.slow
def test_the_installed_command_runs_in_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    command = Command(empty)
    lockstep = str(installed / "lockstep")

    conf = command(str(installed / "python"), "-c", "from lockstep.base.files import CONF; print(CONF)").out
    assert Path(conf.strip()).is_relative_to(installed.parent)
    bench = command(str(installed / "python"), "-m", "bench")
    assert (bench.status, "No module named bench" in bench.err) == (1, True)

    new = command(str(installed / "python"), "-m", "lockstep.new", "mine")
    assert (new.status, len(new.out.splitlines())) == (0, 17), new.err
    pip = command(sys.executable, *PIP, "--python", str(installed / "python"), "install", *OFFLINE, "-e", ".[dev]")
    assert pip.status == 0, pip.err
    tested = command(str(installed / "python"), "-m", "pytest", "-q", "-k", "user_code1")
    assert (tested.status, "1 passed" in tested.out) == (0, True), tested.out
    assert "example" not in command(lockstep, "--help").out, "it is no package of the wheel"
    started = new.out.splitlines()[-1].split()[1:]
    ended = command(lockstep, *started, "hydra.run.dir=run", "max_epochs=1")
    assert ended.status == 0, ended.err
    assert "identical; expected: identical" in ended.out

    for program in ([lockstep], [str(installed / "python"), "-m", "lockstep"]):
        assert command(*program, "unheard=1").err == "unheard=1: there is no such key; write one that --help lists.\n"
