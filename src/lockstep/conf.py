"""Where the configuration groups lie: in the package of a wheel, else at the top of the checkout."""

from pathlib import Path

CARRIED = Path(__file__).parent / "conf"
CONF = CARRIED if CARRIED.is_dir() else Path(__file__).parents[2] / "conf"
