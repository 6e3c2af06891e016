"""Checkpoints that either engine reads under any strategy, by Lightning's keys (`state_dict`, `epoch`, …).

`choice`: which one a run begins from; `reading`: loading it, and which plans may resume from it; `content`: what it
holds beside Lightning's; `saving`: writing, and which is the best; `files`: names, checks for damage.
"""
