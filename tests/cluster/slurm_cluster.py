"""A real Slurm on this host: one controller, a few nodes, two pretend GPUs each.

Every node is a ``slurmd -N name`` on a port of its own, so nothing but the daemons of the
distribution is needed: no systemd, no cgroups, no accounting. Needs root (slurmd starts jobs as their user).

By hand: ``python -m tests.cluster.slurm_cluster up DIR`` and ``… down DIR``.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

DAEMONS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scontrol")
GPUS_PER_NODE = 2
PARTITIONS = {
    "main": "Default=YES PriorityTier=1 PreemptMode=CANCEL",
    "spare": "PriorityTier=1 PreemptMode=REQUEUE",
    "urgent": "PriorityTier=10 PreemptMode=OFF",
}
"""All have all nodes; jobs of ``urgent`` take the place of the others'."""
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0


def missing_programs() -> list[str]:
    """The programs of Slurm and munge that this host lacks."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    return [name for name in DAEMONS if shutil.which(name, path=path) is None]


def free_ports(count: int) -> list[int]:
    """Loopback ports that nobody listens on, all different."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


class SlurmCluster:
    """Starts and stops the daemons below one folder.

    Args:
        base: where configuration, state, logs and pid files go; its path must be short, because a
            Unix socket lies in it.
        nodes: how many nodes, named ``n1`` and so on.
        options: further lines of ``slurm.conf``, replacing those of the same key.
    """

    def __init__(self, base: Path, nodes: int = 3, options: Iterable[str] = ()) -> None:
        self.base = base.resolve()
        self.names = [f"n{index}" for index in range(1, nodes + 1)]
        self.conf = self.base / "slurm.conf"
        self._options = list(options)

    def environment(self) -> dict[str, str]:
        """What a client of this cluster needs in its environment."""
        return {**os.environ, **self.client_variables()}

    def client_variables(self) -> dict[str, str]:
        """The part of it that is this cluster's own."""
        path = os.environ.get("PATH", "/usr/bin:/bin")
        return {"SLURM_CONF": str(self.conf), "PATH": f"{path}:/usr/sbin:/sbin"}

    def run(self, *command: str, timeout_s: float = 20.0) -> str:
        """Standard output of a Slurm command; raises CalledProcessError where it fails."""
        done = subprocess.run(
            command, env=self.environment(), capture_output=True, text=True, timeout=timeout_s, check=True
        )
        return done.stdout

    def up(self) -> None:
        """Writes the configuration, starts every daemon, waits until all nodes are idle."""
        self._lay_out()
        self._write_conf()
        self._spawn(
            "munged",
            "--force",
            f"--key-file={self.base}/munge.key",
            f"--socket={self.base}/munge.sock",
            f"--pid-file={self.base}/munged.pid",
            f"--log-file={self.base}/log/munged.log",
            f"--seed-file={self.base}/munge.seed",
        )
        self.start_controller()
        for name in self.names:
            self.start_node(name)
        self.wait_idle()

    def start_controller(self) -> None:
        """Starts slurmctld, keeping the state it left."""
        self._spawn("slurmctld")

    def stop_controller(self, kill: bool = False) -> None:
        """Stops slurmctld alone, by SIGKILL where asked."""
        self._stop("slurmctld.pid", kill)

    def start_node(self, name: str) -> None:
        """Starts one node's slurmd."""
        self._spawn("slurmd", "-N", name)

    def stop_node(self, name: str, kill: bool = True) -> None:
        """Takes one node's slurmd away, as a crash does; its job steps live on."""
        self._stop(f"slurmd.{name}.pid", kill)

    def wait_idle(self) -> None:
        """Until every node is idle; raises TimeoutError with the states otherwise."""
        deadline = time.monotonic() + START_TIMEOUT_S
        states = ""
        while time.monotonic() < deadline:
            try:
                states = self.run("sinfo", "-h", "-N", "-p", "main", "-o", "%N %t")
            except subprocess.SubprocessError:
                states = "no answer"
            if sum(line.endswith(" idle") for line in states.splitlines()) == len(self.names):
                return
            time.sleep(0.1)
        raise TimeoutError(f"Slurm is not idle after {START_TIMEOUT_S:.0f} s: {states!r}")

    def settle(self) -> None:
        """Cancels every job and waits until all nodes are idle: one test leaves nothing to the next."""
        self.run("scancel", "--user", "root")
        self.wait_idle()

    def down(self) -> None:
        """Cancels every job and stops every daemon it started; safe to call twice."""
        try:
            self.run("scancel", "--user", "root")
            deadline = time.monotonic() + STOP_TIMEOUT_S
            while time.monotonic() < deadline and self.run("squeue", "-h"):
                time.sleep(0.1)
        except (subprocess.SubprocessError, OSError):
            pass
        for name in self.names:
            self._stop(f"slurmd.{name}.pid", kill=False)
        self._stop("slurmctld.pid", kill=False)
        self._stop("munged.pid", kill=False)

    def _lay_out(self) -> None:
        for folder in ("state", "log", "dev", *(f"spool/{name}" for name in self.names)):
            (self.base / folder).mkdir(parents=True, exist_ok=True)
        for index in range(GPUS_PER_NODE):
            node = self.base / "dev" / f"nvidia{index}"
            if not node.exists():
                # A gres file must be a character device, or no CUDA_VISIBLE_DEVICES is set.
                os.mknod(node, 0o20666, os.makedev(1, 3))
        key = self.base / "munge.key"
        if not key.exists():
            key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o600)

    def _write_conf(self) -> None:
        host = socket.gethostname().split(".")[0]
        controller, *node_ports = free_ports(1 + len(self.names))
        lines = {
            "ClusterName": "orchtest",
            "SlurmctldHost": f"{host}(127.0.0.1)",
            "SlurmUser": "root",
            "SlurmdUser": "root",
            "AuthType": "auth/munge",
            "AuthInfo": f"socket={self.base}/munge.sock",
            "CredType": "cred/munge",
            "SlurmctldPort": str(controller),
            "StateSaveLocation": f"{self.base}/state",
            "SlurmdSpoolDir": f"{self.base}/spool/%n",
            "SlurmctldPidFile": f"{self.base}/slurmctld.pid",
            "SlurmdPidFile": f"{self.base}/slurmd.%n.pid",
            "SlurmctldLogFile": f"{self.base}/log/slurmctld.log",
            "SlurmdLogFile": f"{self.base}/log/slurmd.%n.log",
            "ProctrackType": "proctrack/linuxproc",
            "TaskPlugin": "task/none",
            "JobAcctGatherType": "jobacct_gather/none",
            "AccountingStorageType": "accounting_storage/none",
            "MpiDefault": "none",
            "SwitchType": "switch/none",
            "SelectType": "select/cons_tres",
            "SelectTypeParameters": "CR_Core",
            "SchedulerType": "sched/backfill",
            "SchedulerParameters": "sched_interval=2,bf_interval=2,batch_sched_delay=0",
            "SlurmdParameters": "config_overrides",
            "ReturnToService": "2",
            "SlurmdTimeout": "15",
            "SlurmctldTimeout": "15",
            "MessageTimeout": "10",
            "KillWait": "3",
            "InactiveLimit": "0",
            "MinJobAge": "3600",
            "UnkillableStepTimeout": "15",
            "GresTypes": "gpu",
            "PreemptType": "preempt/partition_prio",
            "PreemptMode": "REQUEUE",
        }
        for option in self._options:
            key, _, value = option.partition("=")
            lines[key] = value
        text = [f"{key}={value}" for key, value in lines.items()]
        gres = []
        for name, port in zip(self.names, node_ports, strict=True):
            text.append(
                f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=8 "
                f"RealMemory=8000 Gres=gpu:{GPUS_PER_NODE} State=UNKNOWN"
            )
            gres.append(f"NodeName={name} Name=gpu File={self.base}/dev/nvidia[0-{GPUS_PER_NODE - 1}]")
        where = f"Nodes={','.join(self.names)} MaxTime=INFINITE State=UP"
        text += [f"PartitionName={name} {where} {line}" for name, line in PARTITIONS.items()]
        self.conf.write_text("\n".join(text) + "\n")
        (self.base / "gres.conf").write_text("\n".join(gres) + "\n")

    def _spawn(self, *command: str) -> None:
        subprocess.run(
            command, env=self.environment(), check=True, timeout=START_TIMEOUT_S, capture_output=True
        )

    def _stop(self, pid_file: str, kill: bool) -> None:
        path = self.base / pid_file
        if not path.exists() or not path.read_text().strip():
            return
        pid = int(path.read_text())
        deadline = time.monotonic() + STOP_TIMEOUT_S
        sent: int = signal.SIGKILL if kill else signal.SIGTERM
        while _send(pid, sent):
            sent = signal.SIGKILL if kill or time.monotonic() > deadline else 0
            time.sleep(0.05)
        path.unlink(missing_ok=True)


def _send(pid: int, sent: int) -> bool:
    """Signals a process; False where it is gone or only its exit status is left."""
    try:
        os.kill(pid, sent)
        # Where the first process of a container never reaps, a dead daemon stays a zombie.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def main() -> None:
    """``up DIR`` or ``down DIR``."""
    verb, base = sys.argv[1], Path(sys.argv[2])
    cluster = SlurmCluster(base)
    if verb == "up":
        cluster.up()
        print(f"export SLURM_CONF={cluster.conf}")
    else:
        cluster.down()
        shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    main()
