"""Another process that takes device memory while the engine sleeps, as an inference engine would.

It lives outside the rank, so the rank's own allocator knows nothing of it. Commands arrive as lines on
standard input: ``hold`` and ``release``; each is answered by one line when it is done. End of file ends it.

Usage: ``python -m worker.holder --device UUID|cpu --bytes N``
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from typing import IO

from worker.failures import RankError


class HolderProcess:
    """The rank's side: starts the process and talks to it. Start it before the loop."""

    def __init__(self, device: str, size_bytes: int) -> None:
        command = [sys.executable, "-m", "worker.holder", "--device", device, "--bytes", str(size_bytes)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=_environment(device)
        )
        self.size_bytes = size_bytes
        self._answer("ready")

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def hold(self) -> None:
        """Take the memory; RankError ``oom_gpu`` if it is not to be had."""
        self._ask("hold", "held")

    def release(self) -> None:
        """Give the memory back to the device."""
        self._ask("release", "released")

    def close(self) -> None:
        """End the process."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()

    def _ask(self, command: str, expected: str) -> None:
        assert self._process.stdin is not None
        try:
            print(command, file=self._process.stdin, flush=True)
        except BrokenPipeError as error:
            raise RankError("exception", "the process that holds memory has died") from error
        self._answer(expected)

    def _answer(self, expected: str) -> None:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if line != expected:
            message = f"cannot hold {self.size_bytes} bytes while offloaded: {line or 'the holder has died'}"
            raise RankError(None, message, status="oom_gpu")


def _environment(device: str) -> dict[str, str]:
    environment = dict(os.environ)
    if device != "cpu":
        environment["CUDA_VISIBLE_DEVICES"] = device
    # Run from the job's own directory: the packages must be found all the same.
    environment["PYTHONPATH"] = os.pathsep.join(entry for entry in sys.path if entry)
    return environment


def serve(device: str, size_bytes: int, commands: IO[str], answers: IO[str]) -> None:
    """Answer commands until the end of file."""
    import torch

    place = torch.device("cpu" if device == "cpu" else "cuda:0")
    if place.type == "cuda":
        torch.zeros(1, device=place)  # The context itself, before anything is measured.
    held = None
    print("ready", file=answers, flush=True)
    for line in commands:
        if line.strip() == "hold":
            try:
                held = torch.zeros(size_bytes, dtype=torch.uint8, device=place)
            except (RuntimeError, MemoryError) as error:
                print(" ".join(str(error).split())[:200], file=answers, flush=True)
                continue
        else:
            held = None
        if place.type == "cuda":
            torch.cuda.synchronize()
            if held is None:
                torch.cuda.empty_cache()
        print("released" if held is None else "held", file=answers, flush=True)


def main() -> None:
    """The process itself."""
    parser = argparse.ArgumentParser(prog="python -m worker.holder")
    parser.add_argument("--device", required=True)
    parser.add_argument("--bytes", type=int, required=True)
    options = parser.parse_args()
    serve(options.device, options.bytes, sys.stdin, sys.stdout)


if __name__ == "__main__":
    main()
