"""How fast is the raw link between a device and the host?

A process of its own: inside a rank it would fill the cache of pinned memory and hide the cold cost. Pinned
and pageable, down (device to host) and up; the median of several copies after one that warms up.

Usage: ``python -m worker.probe --device UUID [--device UUID ...] [--at-once N] [--json]``. Several devices
copy at the same time. Prints rows of ``link_probe``; on a CPU an empty list.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from time import perf_counter
from typing import Any

PINNED_BYTES = 1 << 30
PAGEABLE_BYTES = 256 << 20
COPIES = 7


def probe(uuids: list[str], at_once: int | None = None, copies: int = COPIES) -> list[dict[str, object]]:
    """Rows of ``link_probe`` for the devices; they copy at the same time if there are several."""
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(uuids)
    import torch

    if not torch.cuda.is_available():
        return []
    rows: list[list[dict[str, object]]] = [[] for _ in uuids]
    errors: list[BaseException] = []
    meeting = threading.Barrier(len(uuids))

    def run(index: int) -> None:
        try:
            rows[index] = _probe_one(
                torch, index, uuids[index], at_once or len(uuids), copies, lambda: meeting.wait(60)
            )
        except BaseException as error:
            errors.append(error)
            meeting.abort()

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(uuids))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return [row for device_rows in rows for row in device_rows]


def _probe_one(
    torch: Any, index: int, uuid: str, at_once: int, copies: int, meet: Callable[[], object]
) -> list[dict[str, object]]:
    torch.cuda.set_device(index)
    name = torch.cuda.get_device_properties(index).name
    free, _ = torch.cuda.mem_get_info(index)
    rows: list[dict[str, object]] = []
    for pinned, wanted in ((True, PINNED_BYTES), (False, PAGEABLE_BYTES)):
        size = int(min(wanted, free // 4))
        on_device = torch.ones(size, dtype=torch.uint8, device=f"cuda:{index}")
        # Ones, not empty: the first touch of a page is not what is asked here.
        on_host = torch.ones(size, dtype=torch.uint8, pin_memory=pinned)
        for direction, target, source in (("down", on_host, on_device), ("up", on_device, on_host)):
            seconds = []
            for _ in range(copies + 1):
                torch.cuda.synchronize(index)
                meet()
                started = perf_counter()
                target.copy_(source, non_blocking=True)
                torch.cuda.synchronize(index)
                seconds.append(perf_counter() - started)
            median = statistics.median(seconds[1:])
            rows.append(
                {
                    "host": socket.gethostname(),
                    "device_uuid": uuid,
                    "device_name": name,
                    "pinned": pinned,
                    "direction": direction,
                    "bytes": size,
                    "copies": copies,
                    "seconds": median,
                    "gbps": size / median / 1e9,
                    "devices_at_once": at_once,
                    "probed_at": datetime.now(UTC).isoformat(timespec="microseconds"),
                }
            )
        del on_device, on_host
    return rows


def main() -> None:
    """The process itself; exit 1 with one line on stderr if the device cannot be probed."""
    parser = argparse.ArgumentParser(prog="python -m worker.probe", description="Measure the raw link.")
    parser.add_argument("--device", action="append", default=[], help="UUID of a device; repeatable")
    parser.add_argument("--at-once", type=int, default=None, help="devices that copy now, if others do too")
    parser.add_argument("--copies", type=int, default=COPIES)
    parser.add_argument("--json", action="store_true", help="print JSON (the only format)")
    options = parser.parse_args()
    uuids = [uuid for uuid in options.device if uuid != "cpu"]
    if not uuids or os.environ.get("DS_ACCELERATOR") == "cpu":
        print("[]")
        return
    try:
        rows = probe(uuids, options.at_once, options.copies)
    except (RuntimeError, AssertionError) as error:
        print(f"link probe of {', '.join(uuids)}: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(1)
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
