"""Checkpoints that either engine reads under any strategy.

`files`: whole files under their names; `content`: what lies in them; `identity`: which plans may go on from them;
`reading`: one of them, held against a plan; `keeper`: when one is due, and which is the best.

The keys are Lightning's: `state_dict` (named `net.…`, never `module.…`), `epoch` (from 0), `global_step`,
`optimizer_states`, `lr_schedulers`; under `lockstep` lies what Lightning does not save: see `content`.
"""
