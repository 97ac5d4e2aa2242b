"""The fork server: imports everything once, then forks one fresh process per rank.

``python -m worker.server --control FD --worker MODULE:FUNCTION --accelerator cpu --cache FOLDER``

It never computes and never touches a device. Before every fork it checks that it has one thread and no
CUDA context, and refuses otherwise. The supervisor at the other end of the control socket sends
``fork`` and gets ``forked`` or ``refused``, later ``exited``; end of file means that it is gone.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from worker import nvml, preload
from worker.guarded import die_with_parent, resolve
from worker.learned import Learned, report_on_exit
from worker.threads import thread_names

_MESSAGE_BYTES = 1 << 20


def unsafe_reason() -> str | None:
    """Why a fork would not be safe now; None if it is."""
    threads = thread_names()
    if len(threads) != 1:
        return f"the fork server has {len(threads)} threads ({', '.join(threads)})"
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return "CUDA is initialised in the fork server"
    return None


class Server:
    """Forks ranks on request and tells how they ended."""

    def __init__(self, control: socket.socket, worker: str, learned: Learned | None) -> None:
        self._control = control
        self._worker = worker
        self._learned = learned
        self._poll = select.epoll()
        self._poll.register(control.fileno(), select.EPOLLIN)
        self._pids: dict[int, int] = {}
        """pid of each child by its pidfd."""
        self._reports: dict[int, str] = {}
        """Where a child writes which modules it had to import, by pid."""

    def serve(self) -> None:
        """Until the supervisor is gone."""
        self._say({"op": "ready", "pid": os.getpid(), "unsafe": unsafe_reason()})
        while True:
            for descriptor, _ in self._poll.poll():
                if descriptor != self._control.fileno():
                    self._child_ended(descriptor)
                elif not self._take_request():
                    return

    def kill_children(self) -> None:
        """End every child's session; for when the supervisor is gone."""
        for pid in self._pids.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)

    def _say(self, message: Mapping[str, object]) -> None:
        self._control.sendall(json.dumps(message).encode())

    def _take_request(self) -> bool:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._control, _MESSAGE_BYTES, 64)
        except ConnectionError:
            return False
        if not data:
            return False
        request = json.loads(data)
        try:
            self._fork_ranks(request, descriptors)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        return True

    def _fork_ranks(self, request: Mapping[str, Any], outputs: Sequence[int]) -> None:
        group = request["group"]
        reason = unsafe_reason()
        if reason is not None:
            self._say({"op": "refused", "group": group, "reason": reason})
            return
        learns = self._learned is not None and not self._reports and self._learned.wants_more
        for index, (rank, variables) in enumerate(request["ranks"]):
            report = f"{request['folder']}/.modules.json" if learns and index == 0 else None
            pid = os.fork()
            if pid == 0:
                self._be_rank(request, rank, variables, outputs[index], report)
            descriptor = os.pidfd_open(pid)
            self._pids[descriptor] = pid
            self._poll.register(descriptor, select.EPOLLIN)
            if report is not None:
                self._reports[pid] = report
            self._say({"op": "forked", "group": group, "rank": rank, "pid": pid})

    def _child_ended(self, descriptor: int) -> None:
        pid = self._pids.pop(descriptor)
        self._poll.unregister(descriptor)
        os.close(descriptor)
        _, status = os.waitpid(pid, 0)
        self._say({"op": "exited", "pid": pid, "code": os.waitstatus_to_exitcode(status)})
        report = self._reports.pop(pid, None)
        if report is not None and self._learned is not None:
            problem = self._learned.take(report)
            if problem is not None:
                self._say({"op": "spoiled", "text": problem})

    def _be_rank(
        self,
        request: Mapping[str, Any],
        rank: int,
        variables: Mapping[str, str],
        output: int,
        report: str | None,
    ) -> NoReturn:
        """In the child: become a rank as if it had been started by itself. Never returns."""
        code = 1
        try:
            os.setsid()
            die_with_parent(request["server"])
            os.dup2(output, 1)
            os.dup2(output, 2)
            # One call: what is above the standard descriptors is the server's business.
            os.closerange(3, max(map(int, os.listdir("/proc/self/fd"))) + 1)
            _change_environment({**request["variables"], **variables}, request["unset"])
            os.chdir(request["folder"])
            if self._learned is None:
                # Nothing stays frozen. ``worker.rank`` sees to it itself, right before its loop: the
                # collection that DeepSpeed makes while it sets up would copy every page of the heap.
                gc.unfreeze()
            gc.enable()
            if "torch" in sys.modules:
                nvml.initialise()
            if report is not None:
                report_on_exit(report)
            resolve(self._worker)(request["job"], rank)
            code = 0
        except SystemExit as leaving:
            code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)


def _change_environment(variables: Mapping[str, str], unset: Sequence[str]) -> None:
    """Set what differs from the server's own: each change copies pages of the server's memory."""
    for name in unset:
        os.environ.pop(name, None)
    for name, value in variables.items():
        if os.environ.get(name) != value:
            os.environ[name] = value


def main() -> None:
    """Preload, then serve until the supervisor is gone."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--control", type=int, required=True)
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--worker", required=True)
    parser.add_argument("--accelerator", required=True)
    parser.add_argument("--cache", required=True)
    arguments = parser.parse_args()
    die_with_parent(arguments.parent)
    # Ctrl-C and TERM are the supervisor's to judge; the end of the control socket is ours.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = socket.socket(fileno=arguments.control)
    module = arguments.worker.partition(":")[0]

    def on_build() -> None:
        control.sendall(json.dumps({"op": "building"}).encode())

    learned = preload.load(module, arguments.accelerator, arguments.cache, on_build)
    importlib.import_module(module)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # The heap is shared with the children as long as nobody writes to it: no collection here.
    gc.collect()
    gc.disable()
    gc.freeze()
    server = Server(control, arguments.worker, learned)
    try:
        server.serve()
    except ConnectionError:
        pass
    finally:
        server.kill_children()


if __name__ == "__main__":
    main()
