"""When may an attempt be launched? When its fork server is ready and the host's timed section is free."""

from __future__ import annotations

from collections.abc import Callable

from orchestrator.launch.events import Timed, Waiting
from orchestrator.launch.hosting import Host
from orchestrator.launch.order import Launcher, LaunchOrder
from orchestrator.launch.servers import ForkServer


class Turn:
    """One attempt's place in the line.

    Attributes:
        mode: how its ranks are to be started; ``spawn`` where a fork would not be safe.
        note: why ``mode`` is not what was ordered.
        server: forks the ranks, in mode ``fork``.
    """

    def __init__(self, host: Host, order: LaunchOrder, came: Callable[[], None]) -> None:
        """``came`` is called when the attempt may be launched."""
        self.mode: Launcher = order.launcher
        self.note: str | None = None
        self.server: ForkServer | None = None
        self._host = host
        self._order = order
        self._came = came
        self._is_waiting = True
        self._holds_section = False

    @property
    def holds_section(self) -> bool:
        """Whether no other attempt of the host can be timed now."""
        return self._holds_section

    def wait(self) -> None:
        """Get in line."""
        if self.mode == "fork":
            self._want_server()
        else:
            self._want_section()

    def give_up(self) -> None:
        """Leave the line: the attempt is not to be launched any more."""
        self._is_waiting = False

    def fall_back(self, reason: str) -> None:
        """Start the ranks one by one instead of forking them."""
        self.mode, self.server = "spawn", None
        self.note = f"spawn instead of fork: {reason}"

    def release_section(self) -> None:
        """Let another attempt be timed; harmless for one who is not in the section."""
        held, self._holds_section = self._holds_section, False
        self._host.sections.release(self)
        if held:
            self._host.emit(Timed(self._order.attempt_uid, False))

    def _want_server(self) -> None:
        order = self._order
        server = self._host.servers.get(order.worker, order.accelerator, order.env)
        if server is None:
            self.fall_back("the fork server could not be started")
            self._want_section()
            return
        self.server = server
        if server.is_ready:
            self._server_settled()
        else:
            self._host.emit(Waiting(order.attempt_uid, "fork server"))
            server.when_settled(self._server_settled)

    def _server_settled(self) -> None:
        if not self._is_waiting:
            return
        assert self.server is not None
        if self.server.is_gone:
            self._want_server()
            return
        if self.server.unsafe is not None:
            self.fall_back(self.server.unsafe)
        self._want_section()

    def _want_section(self) -> None:
        if not self._order.timed_section:
            self._comes()
        elif self._host.sections.request(self, self._section_granted):
            self._section_granted()
        else:
            self._host.emit(Waiting(self._order.attempt_uid, "timed section"))

    def _section_granted(self) -> None:
        if not self._is_waiting:
            self._host.sections.release(self)
            return
        self._holds_section = True
        self._host.emit(Timed(self._order.attempt_uid, True))
        if self.server is not None and self.server.is_gone:
            # It died while this one stood in line: line up again behind a new one.
            self.release_section()
            self._want_server()
            return
        self._comes()

    def _comes(self) -> None:
        self._is_waiting = False
        self._came()
