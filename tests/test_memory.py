"""A tensor that is made and freed again and again costs its pages once."""

import subprocess
import sys

import pytest

AGAIN_AND_AGAIN = """
import resource, sys, torch
from lockstep.memory import keep_freed
if sys.argv[1] == "kept":
    keep_freed()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
torch.ones(2**24)
before = faults()
for _ in range(10):
    torch.ones(2**24)
print(faults() - before)
"""

PAGES = 2**24 * 4 // 4096


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's malloc")
def test_freed_pages_are_not_fetched_again() -> None:
    faults = {
        kind: int(subprocess.run([sys.executable, "-c", AGAIN_AND_AGAIN, kind], capture_output=True, check=True).stdout)
        for kind in ("kept", "as ever")
    }
    assert faults["kept"] < 2 * PAGES
    assert faults["as ever"] > 5 * PAGES  # or there is nothing to keep
