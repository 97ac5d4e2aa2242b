"""A rank module whose import starts a thread: no fork server may fork after it."""

import threading
import time

from tests.launch.workers import good

threading.Thread(target=time.sleep, args=(600,), daemon=True).start()

__all__ = ["good"]
