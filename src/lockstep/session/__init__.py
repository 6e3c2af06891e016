"""What both engines do around a module and its data: create them, record, save, log and restore.

`session` has the moments of a run at which engines call it. It composes objects of one task each: the data of a rank
(`loaders`), the steps of the module (`steps`), `results`, `progress`, `epoch_timing`, `module_state`.
"""
