"""What happens in the steps of a module: how much its loss counts, what it logs over ranks, what is measured.

A plain net with a task is a `task_module`, whose loss counts by `task_step`; of a user's LightningModule it counts by
`module_step`, which wraps methods of that one object.
"""
