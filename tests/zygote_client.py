"""Stand-in for `python` and `torchrun` in scripts and below torchrun: the warm process forks the command.

It has this process's streams, folder, environment and namespaces, gets its signals, and ends when this process does.
"""

import contextlib
import json
import os
import signal
import socket
import sys

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1)

folder, program = os.path.split(sys.argv[0])
start = ["-m", "torch.distributed.run"] if program == "torchrun" else []
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as warm:
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    warm.connect(os.path.join(folder, "socket"))  # noqa: PTH118
    request = {"arguments": [*start, *sys.argv[1:]], "folder": os.getcwd(), "environment": dict(os.environ)}  # noqa: PTH109
    socket.send_fds(warm, [json.dumps({**request, "client": os.getpid()}).encode()], [0, 1, 2])
    pid = int(warm.recv(100))

    def forward(number: int, _frame: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    for each in SIGNALS:
        if signal.getsignal(each) is not signal.SIG_IGN:
            signal.signal(each, forward)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    status = os.waitstatus_to_exitcode(int(warm.recv(100)))
if status < 0:
    if -status in SIGNALS:
        signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
os._exit(status)
