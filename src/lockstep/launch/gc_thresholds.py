"""Look for garbage seldom: importing makes a million objects and no garbage, and training hardly any in circles.

With Python's own thresholds a third of `import lightning` is spent looking through what it has made. The fork server
imports this module first, and the command itself before it imports torch.
"""

import gc

gc.set_threshold(100_000, 50, 50)
