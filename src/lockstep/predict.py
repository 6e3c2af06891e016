"""`python -m lockstep.predict RUN INPUT…`: what the module of a run says of pictures, arrays or texts."""

import argparse
import sys
from pathlib import Path

from lockstep.config_error import ConfigError, require
from lockstep.disk import disk_errors_as_config_errors
from lockstep.streams import outlive_readers
from lockstep.text_table import rows_text, width_shown

SHOWN = 20  # rows that are printed
SHOWN_COLUMNS = 6


def main() -> int:
    """Print the predictions, and write them to a file; return 2 if an input cannot be read."""
    outlive_readers()
    parser = argparse.ArgumentParser(prog="python -m lockstep.predict", description="Print the predictions of a net.")
    parser.add_argument("run", help="the folder of a run, or a checkpoint")
    parser.add_argument("inputs", nargs="+", metavar="INPUT", help="a picture, a folder of them, .npz, .npy; a text")
    parser.add_argument("--output", type=Path, help="a .csv or .npz file to write")
    parser.add_argument("--device", default="cpu", help="cpu (the default), cuda, …")
    parser.add_argument("--length", type=int, default=100, help="characters to add to a text (100)")
    typed = parser.parse_args()
    try:
        _predict(typed)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _predict(typed: argparse.Namespace) -> None:
    if typed.output is not None:
        hint = "--output predictions.csv, or a .npz file"
        require(typed.output.suffix in (".csv", ".npz"), "--output", typed.output, "it is neither .csv nor .npz", hint)
        require(typed.output.parent.is_dir(), "--output", typed.output, "there is no such folder", hint)
    from lockstep.inference import predictions, trained_module  # with torch
    from lockstep.inference.inputs import ARRAYS

    plan, checkpoint = trained_module.read_run(typed.run)
    module = trained_module.move(trained_module.restore(plan, checkpoint), typed.device)
    known = predictions.characters_of(plan, module)
    if known and not typed.inputs[0].endswith(ARRAYS):
        require(typed.output is None, "--output", typed.output, "a text is printed alone", "… > FILE.txt behind it")
        for text in typed.inputs:
            print(predictions.continue_text(module, known, text, typed.length))
        return
    predicted = predictions.predict(plan, module, typed.inputs)
    rows = predicted.rows()
    columns = [*rows[0]][: 3 if predicted.classes else SHOWN_COLUMNS]
    cells = ({name: row[name] for name in columns} for row in rows[:SHOWN])
    shown = [{name: str(cell) if isinstance(cell, int) else cell for name, cell in row.items()} for row in cells]
    print(rows_text(shown, width_shown(), left=2 if predicted.classes else 1))
    hidden = {"rows": len(rows) - SHOWN, "columns": 0 if predicted.classes else len(rows[0]) - SHOWN_COLUMNS}
    if more := [f"{count} more {name}" for name, count in hidden.items() if count > 0]:
        print(f"… {', '.join(more)}; --output FILE.csv has all")
    if typed.output is not None:
        with disk_errors_as_config_errors(typed.output.parent):
            predicted.save(typed.output)
        print(f"\n{typed.output}")


if __name__ == "__main__":
    raise SystemExit(main())
