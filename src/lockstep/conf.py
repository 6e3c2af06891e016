"""Where the configuration groups lie."""

from pathlib import Path

CONF = Path(__file__).parents[2] / "conf"
