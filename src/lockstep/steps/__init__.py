"""The steps of a module: the weight of its loss, the values that it logs over ranks, its metrics.

`module_step` wraps methods of one LightningModule, whose class and file stay as they are.
"""
