"""Processes that were forked before anything of orch was loaded, and become ranks later.

A node of a cluster serves one attempt: a fork server would not pay, and a new interpreter for each rank
costs as much again as the node's own. A spare is as clean as a new interpreter, because it is a copy of one
that had loaded next to nothing; it waits, asleep, until it is told what to be.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

_MESSAGE_BYTES = 1 << 20
_HERE = b"here"


class Spares:
    """So many waiting processes of this one; they leave when it does."""

    def __init__(self, count: int) -> None:
        self._waiting: list[tuple[int, socket.socket]] = []
        for _ in range(count):
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            pid = os.fork()
            if pid == 0:
                ours.close()
                for _, another in self._waiting:
                    another.close()
                _wait_and_become(theirs)
            theirs.close()
            self._waiting.append((pid, ours))

    def become(
        self, command: Sequence[str], environment: Mapping[str, str], folder: str, output: int
    ) -> int | None:
        """Have a spare do what ``python -P -m MODULE ...`` would do in a session of its own.

        Returns its pid; None where a new process must be started: the command is another one, no spare
        is left, or it was ended while it waited.
        """
        if not self._waiting or list(command[:3]) != [sys.executable, "-P", "-m"]:
            return None
        pid, control = self._waiting.pop()
        message = {"arguments": command[3:], "environment": dict(environment), "folder": folder}
        with control:
            try:
                # Until it has said so it may not lead its session yet.
                if control.recv(len(_HERE)) != _HERE:
                    return None
                socket.send_fds(control, [json.dumps(message).encode()], [output])
            except OSError:  # it is gone, or the environment is too long for one message
                return None
        return pid

    def close(self) -> None:
        """Let those that are left go."""
        while self._waiting:
            self._waiting.pop()[1].close()


def _wait_and_become(control: socket.socket) -> NoReturn:
    """In the child. Never returns."""
    code = 1
    try:
        os.setsid()
        try:
            control.send(_HERE)
            message, descriptors, _, _ = socket.recv_fds(control, _MESSAGE_BYTES, 1)
        except OSError:
            os._exit(0)
        if not message or not descriptors:
            os._exit(0)  # nobody needs it, or its parent is gone
        code = _become(json.loads(message), descriptors[0])
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except BaseException:  # noqa: BLE001 - as the interpreter itself would: told, and the status is 1.
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _become(told: Mapping[str, object], output: int) -> int:
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, descriptor in enumerate((nothing, output, output)):
        os.dup2(descriptor, number)
    os.closerange(3, max(map(int, os.listdir("/proc/self/fd"))) + 1)
    environment, arguments = told["environment"], told["arguments"]
    assert isinstance(environment, dict)
    assert isinstance(arguments, list)
    os.environ.clear()
    os.environ.update(environment)
    if environment.get("PYTHONUNBUFFERED"):
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(write_through=True)  # type: ignore[union-attr]
    given = [entry for entry in environment.get("PYTHONPATH", "").split(os.pathsep) if entry]
    sys.path[:0] = [entry for entry in given if entry not in sys.path]
    os.chdir(str(told["folder"]))
    sys.argv[1:] = arguments[1:]
    runpy.run_module(str(arguments[0]), run_name="__main__", alter_sys=True)
    return 0
