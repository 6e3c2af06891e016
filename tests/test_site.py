"""mkdocs.yml and docs/site_hooks.py: the pages are a site that needs nothing from elsewhere."""

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import lockstep
from tests.conftest import ROOT

PUBLIC = ("lockstep.models", "lockstep.datamodules", "lockstep.nets")
ELSEWHERE = r"""<(?:script|link|img|iframe)\b[^>]*(?:src|href)=["']?(?:https?:)?//[^>]*>|(?:@import|url\()\W*https?:"""


def test_the_api_page_names_what_is_public() -> None:
    names = re.findall(r"^- \[`lockstep\.(?:\w+\.)*(\w+)`\]", (ROOT / "docs" / "api.md").read_text(), re.MULTILINE)
    assert {*lockstep.__all__, *(name for package in PUBLIC for name in dir(import_module(package)))} <= {*names}


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="mkdocs is missing: pip install -e '.[docs]'")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=300)
    pages = {path: path.read_text() for path in tmp_path.rglob("*") if path.suffix in (".html", ".css")}
    assert {str(path): found for path, text in pages.items() if (found := re.findall(ELSEWHERE, text))} == {}
    assert 'id="lockstep.run" class="doc doc-heading"' in pages[tmp_path / "api" / "index.html"]
    assert '<h1 id="lockstep">' in pages[tmp_path / "index.html"]
