"""Checkpoints that either engine reads under any strategy.

`files`: atomic writes under fixed names; `content`: what is in them; `identity`: which plans may resume from them;
`checks`, `form`, `optimizer_form`: whether the content is valid; `reading`: reading one for a plan; `saving`: when one
is due, and which is the best.

The keys are Lightning's: `state_dict` (named `net.…`, never `module.…`), `epoch` (from 0), `global_step`,
`optimizer_states`, `lr_schedulers`; under `lockstep` lies what Lightning does not save: see `content`.
"""
