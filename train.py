"""Compose a job (or a sweep of them), run it, print the result: `python train.py strategy=ddp devices=2`."""

import signal

if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C during the imports ends the process without a traceback

from lockstep.__main__ import main

if __name__ == "__main__":
    main()
