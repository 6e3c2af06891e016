"""The record of a run, record.jsonl: what each optimizer step did on all ranks together, for comparing."""
