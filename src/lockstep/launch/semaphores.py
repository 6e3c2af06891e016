"""What ranks hand their results back with takes semaphores, which Linux keeps in /dev/shm."""

import multiprocessing

from lockstep.launch.server import start_method
from lockstep.refusal import Refusal


def require_semaphores() -> None:
    """Raises Refusal where none can be made."""
    try:
        multiprocessing.get_context(start_method()).Lock()
    except OSError as error:
        instead = "mount -o remount,rw,size=64m /dev/shm (docker run --shm-size=64m), or remove what fills it"
        raise Refusal(f"/dev/shm: no semaphore can be made there ({error.strerror}); write {instead}.") from None
