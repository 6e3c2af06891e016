"""Checkpoints that either engine reads under any strategy.

`choice`: which one a run starts from; `reading`: reading it for a plan; `content`: what is in it; `identity`: which
plans may resume from it; `saving`: when one is due, and which is the best; `files`: atomic writes under fixed names.

The keys are Lightning's: `state_dict` (named `net.…`, never `module.…`), `epoch` (from 0), `global_step`,
`optimizer_states`, `lr_schedulers`; under `lockstep` lies what Lightning does not save: see `content`.
"""
