"""A link probe that measures nothing: the rows that ``worker.probe`` prints on a host with a GPU.

``ORCH_LINK_PROBE="python .../scripted_probe.py LOG"``; each call appends its time to LOG.
"""

from __future__ import annotations

import json
import socket
import sys
from datetime import UTC, datetime
from pathlib import Path

with Path(sys.argv[1]).open("a") as log:
    log.write(" ".join(sys.argv[2:]) + "\n")
now = datetime.now(UTC).isoformat(timespec="microseconds")
print(
    json.dumps(
        [
            {
                "host": socket.gethostname(),
                "device_uuid": "GPU-pretended",
                "device_name": "pretended",
                "pinned": pinned,
                "direction": direction,
                "bytes": 1 << 30,
                "copies": 7,
                "seconds": 0.02,
                "gbps": 53.7,
                "devices_at_once": 1,
                "probed_at": now,
            }
            for pinned in (True, False)
            for direction in ("down", "up")
        ]
    )
)
