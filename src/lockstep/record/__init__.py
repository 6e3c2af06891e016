"""The record of a run, record.jsonl: what each optimizer step did on all ranks together, for comparing.

Engines call `recorder`, which writes the lines. `step_buffer` holds a rank's steps until then.
"""
