"""Checkpoints that are read under any strategy, by Lightning's keys (`state_dict`, `epoch`, …).

`files`: names, checks for damage, and which one a run begins from; `reading`: loading it, and which plans may resume;
`content`: what it holds beside Lightning's; `saving`: writing, and which is the best.
"""
