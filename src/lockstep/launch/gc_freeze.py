"""Imported last by the fork server: what it has imported lives on in every rank, so nobody need look through it again.

A collection of garbage would visit every object, in each rank anew, and in doing so copy the memory that ranks share
with the server (see the Python docs of `gc.freeze`). With those out of sight, what is left would be looked through all
the more often, while training makes hardly any garbage in circles: so the thresholds are raised.
"""

import gc

gc.collect()
gc.freeze()
gc.set_threshold(100_000, 50, 50)
