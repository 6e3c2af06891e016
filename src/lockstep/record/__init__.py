"""The record of a run, record.jsonl: what each optimizer step did on all ranks together, for comparing.

Engines call `recorder`, which holds a rank's steps until it writes their lines: those of `step_lines`.
"""
