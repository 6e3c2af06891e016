"""Checkpoints that either engine reads under any strategy.

`choice`: which one a run begins from; `reading`: loading it for a plan; `content`: what it holds; `identity`: which
plans may resume from it; `saving`: when one is due, and which is the best; `files`: their names, a check for damage.

The keys are Lightning's: `state_dict` (named `net.…`, never `module.…`), `epoch` (from 0), `global_step`,
`optimizer_states`, `lr_schedulers`; under `lockstep` is what Lightning does not save: see `content`.
"""
