"""What both engines do around a module and its data: create them, record, save, log and restore.

`session` has the methods that engines call at the moments of a run. It is composed of objects of one task each: the
data of a rank (`loaders`), the steps of the module (`steps`), `results`, `progress`, `module_state`.
"""
