"""The record of a run, record.jsonl: what each optimizer step did on all ranks together, for comparing.

Engines talk to `recorder`. `step_buffer` holds a rank's steps until they are written, `lines` makes lines of what the
ranks gather, `file` writes them. `sample_ids`, `digest` and `fingerprint` say in a few bytes what two runs compare.
"""
