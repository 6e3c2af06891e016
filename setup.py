"""What pyproject.toml cannot say: a wheel carries conf/ as lockstep/conf, and the example as what lockstep.new copies.

An editable install reads the checkout's.
"""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
EXAMPLE = ("src/example/*.py", "conf/*/example*.yaml", "tests/test_example.py")


class BuildWithConf(build_py):
    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            carried = Path(self.build_lib) / "lockstep" / "conf"
            shutil.rmtree(carried, ignore_errors=True)  # of an earlier build
            shutil.copytree(ROOT / "conf", carried, ignore=shutil.ignore_patterns("example*.yaml"))
            template = Path(self.build_lib) / "lockstep" / "template"
            shutil.rmtree(template, ignore_errors=True)
            for pattern in EXAMPLE:
                for path in ROOT.glob(pattern):
                    copy = template / path.relative_to(ROOT)
                    copy.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(path, copy)


setup(cmdclass={"build_py": BuildWithConf})
