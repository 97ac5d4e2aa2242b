"""The first thing that runs on a node: forks the ranks' processes, then loads what supervises them.

``python -m orchestrator.launch.node_start --order FILE`` is ``orchestrator.launch.node`` for a scheduler's
job. Loaded before the fork is only what each rank needs as well.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import sys

from orchestrator.launch.spares import Spares

SHARED = (argparse, ctypes, json, os, sys)


def spares_for(path: str, node_rank: int) -> Spares | None:
    """A waiting process for each rank of the node; None where each must be started anew.

    An environment of the cell's own may be for the interpreter or the loader, which read it at the start.
    """
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
        order = document["nodes"][node_rank]
        if order["launcher"] == "deepspeed" or order["env"]:
            return None
        return Spares(len(order["ranks"]))
    except (OSError, ValueError, LookupError, TypeError):
        return None  # whoever reads the order says what is wrong with it


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m orchestrator.launch.node_start")
    parser.add_argument("--order", required=True)
    arguments = parser.parse_args()
    node_rank = int(os.environ.get("SLURM_NODEID", "0"))
    spares = spares_for(arguments.order, node_rank)
    # Not before the fork: a rank is to hold nothing of it.
    from orchestrator.launch.node import run_order

    return run_order(arguments.order, node_rank, spares)


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Nothing is left to be done, and to take the interpreter down costs milliseconds of every job.
    os._exit(status)
