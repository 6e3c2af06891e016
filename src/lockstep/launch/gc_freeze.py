"""Imported last by the fork server: what it has imported lives on in every rank, so nobody need look through it again.

A collection of garbage would visit every object, in each rank anew, and in doing so copy the memory that ranks share
with the server (see the Python docs of `gc.freeze`).
"""

import gc

gc.freeze()
