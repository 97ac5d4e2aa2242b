"""Accounting for a Slurm of the tests: a MariaDB and the slurmdbd that writes to it, below one folder."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from pathlib import Path

from tests.cluster.slurm_cluster import START_TIMEOUT_S, SlurmCluster, free_ports

DAEMONS = ("slurmdbd", "mariadbd")
USER = "nobody"


def missing_programs() -> list[str]:
    """The programs that this host lacks."""
    return [name for name in DAEMONS if shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin") is None]


class AccountedCluster(SlurmCluster):
    """A cluster of one node whose controller soon forgets what accounting keeps."""

    def __init__(self, base: Path) -> None:
        self._port, self._sql_port = free_ports(2)
        options = [
            "AccountingStorageType=accounting_storage/slurmdbd",
            "AccountingStorageHost=127.0.0.1",
            f"AccountingStoragePort={self._port}",
            f"AccountingStoragePass={base.resolve()}/munge.sock",
            "MinJobAge=2",
        ]
        super().__init__(base, nodes=1, options=options)

    def start_controller(self) -> None:
        """Starts the database and slurmdbd before it."""
        self._start_database()
        self._start_slurmdbd()
        super().start_controller()

    def down(self) -> None:
        """Also stops accounting."""
        super().down()
        self._stop("slurmdbd.pid", kill=False)
        self._stop("mariadbd.pid", kill=False)

    def _start_database(self) -> None:
        data = self.base / "sql"
        data.mkdir()
        self.base.chmod(0o755)
        shutil.chown(data, USER)
        # Without its system tables: nobody is asked who he is.
        subprocess.Popen(
            [
                "mariadbd", "--no-defaults", f"--user={USER}", f"--datadir={data}", f"--socket={data}/socket",
                f"--pid-file={data}/pid", "--bind-address=127.0.0.1", f"--port={self._sql_port}",
                "--skip-grant-tables", f"--log-error={data}/log",
            ],
            env=self.environment(),
            start_new_session=True,
        )  # fmt: skip
        _wait_for(self._sql_port)
        # Where those that clean up look for it.
        shutil.copy(data / "pid", self.base / "mariadbd.pid")

    def _start_slurmdbd(self) -> None:
        conf = self.base / "slurmdbd.conf"
        lines = {
            "AuthType": "auth/munge",
            "AuthInfo": f"socket={self.base}/munge.sock",
            "DbdAddr": "127.0.0.1",
            "DbdHost": socket.gethostname().split(".")[0],
            "DbdPort": str(self._port),
            "SlurmUser": "root",
            "PidFile": f"{self.base}/slurmdbd.pid",
            "LogFile": f"{self.base}/log/slurmdbd.log",
            "StorageType": "accounting_storage/mysql",
            "StorageHost": "127.0.0.1",
            "StoragePort": str(self._sql_port),
            "StorageUser": "slurm",
            "StorageLoc": "accounting",
        }
        conf.touch(mode=0o600)
        conf.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        self._spawn("slurmdbd")
        _wait_for(self._port)


def _wait_for(port: int) -> None:
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1.0).close()
            return
        except OSError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.05)
