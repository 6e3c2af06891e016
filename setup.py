"""What pyproject.toml cannot say: a wheel carries conf/ as lockstep/conf. An editable install reads the checkout's."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithConf(build_py):
    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            carried = Path(self.build_lib) / "lockstep" / "conf"
            shutil.rmtree(carried, ignore_errors=True)  # of an earlier build
            shutil.copytree(Path(__file__).parent / "conf", carried)


setup(cmdclass={"build_py": BuildWithConf})
