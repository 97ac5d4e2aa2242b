"""Does orch notice somebody else on its device? A small sweep beside a process that holds a gigabyte there.

    python -m benchmarks.stranger --db FILE

Every job of the sweep ``stranger`` must come out as ``overlapped``, with a note that counts the process.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

HOLD = """
import sys, torch
held = torch.ones(1 << 28, device="cuda:0" if torch.cuda.is_available() else "cpu")
print("there", flush=True)
sys.stdin.read()
"""
SWEEP = Path(__file__).resolve().parent.parent / "sweeps" / "quickstart.yaml"


def main() -> None:
    """Runs the sweep beside the process; the exit status is the sweep's."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--db", required=True)
    parser.add_argument("--gpus", help="the device; the process takes the first")
    parser.add_argument("--set", action="append", default=[], metavar="AXIS=VALUE")
    options = parser.parse_args()
    command = [sys.executable, "-m", "orchestrator", "sweep", str(SWEEP), "--name", "stranger"]
    command += ["--db", options.db, "--no-probe", "--quiet"]
    for setting in ("repeats=1", "iteration=4", "warmup=1", *options.set):
        command += ["--set", setting]
    command += ["--gpus", options.gpus] if options.gpus else []
    environment = {**os.environ, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    stranger = subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    )
    assert stranger.stdout is not None
    try:
        if not stranger.stdout.readline():
            sys.exit("the process did not come up")
        status = subprocess.run(command).returncode
    finally:
        stranger.kill()
        stranger.wait()
    sys.exit(status)


if __name__ == "__main__":
    main()
