"""The steps of a module: the weight of its loss, the values that it logs over ranks, its metrics.

A plain net with a task becomes a TaskModule (`task_module`). The loss of a user's LightningModule is weighted by
`module_step`, which wraps methods of that one object.
"""
