"""Memory: how much a plan takes and may take, how it is kept from step to step, and how tensors lie in it.

`footprint`, `limit`; `malloc`, `garbage`; `format`.
"""
