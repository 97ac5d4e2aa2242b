"""Everything that docs/findings.md rests on, measured on a GPU host that one has for minutes only.

    python -m benchmarks.campaign one two --keep FOLDER --limit-s 570
    python -m benchmarks.campaign example --script PATH/offload_states.py --keep FOLDER
    python -m benchmarks.campaign --list

A stage is a sweep or a benchmark with a time limit; the most useful come first. Behind each the database is
copied whole into FOLDER (without memory samples and without this host's folders), so that a machine that
is taken away costs the stage that ran. A stage that does not fit into what is left of the limit is left out.
The benchmarks among them write what they have found into FOLDER as they go, and when they are stopped.

It begins with the database of ``--db`` and continues its sweeps: what is measured already is not measured
again, and what one call had no time for the next one does. The same holds for the rounds of ``parity``,
whose database is ``parity/parity.db`` beside the other. Put FOLDER's databases and JSON files under
docs/data in the place of those they began with, then ``python docs/findings.py`` writes the page.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.memory import touch_memory
from benchmarks.shipping import copy_database, counts, without_folders
from benchmarks.stages import STAGES, Stage, replaced

ROOT = Path(__file__).resolve().parent.parent
DATABASE = ROOT / "docs" / "data" / "h200-x2.db"
PARITY = Path("parity") / "parity.db"
"""The database of ``benchmarks.parity``, in every folder: its sweeps are no findings, so it lies apart."""
COPY_S = 10.0
"""Left at the end for the last copy."""
STOP_S = 20.0
"""From the order to stop until a stage is killed: a job has ten seconds, then figures are written down."""
RESERVE_S = STOP_S + COPY_S
SOME_JOB_FAILED = 1

TINY = replaced(**{"ds.zero_optimization.reduce_bucket_size": "5e6"})


@dataclass(slots=True)
class Campaign:
    """Runs stages one after the other.

    Attributes:
        folder: where the working database and the logs are; stays, so that a second call continues.
        keep: where what is to be kept goes.
        until: monotonic instant at which everything must be over.
        divisor: sizes are divided by it: 1, or more where only the mechanics are tried.
    """

    folder: Path
    keep: Path
    until: float
    divisor: int
    script: Path | None
    gpus: str
    database_name: str

    @property
    def database(self) -> Path:
        """The one that is worked on."""
        return self.folder / "work.db"

    def begin(self, given: Path | None) -> None:
        """Take the measurements that exist, unless an earlier call here has."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.keep.mkdir(parents=True, exist_ok=True)
        if given is None:
            return
        for source, mine in ((given, self.database), (given.parent / PARITY, self.folder / PARITY)):
            if source.exists() and not mine.exists():
                mine.parent.mkdir(exist_ok=True)
                copy_database(source, mine)

    def run(self, stage: Stage) -> str:
        """Run a stage and keep what it measured; how it ended, in a word or two."""
        left_s = self.until - RESERVE_S - time.monotonic()
        if left_s < stage.least_s:
            return f"left out, {max(left_s, 0):.0f} s are left"
        limit_s = min(left_s, 1.5 * stage.expected_s)
        log = self.keep / "campaign.log"
        with log.open("ab") as stream:
            stream.write(f"\n== {stage.name}\n".encode())
            stream.flush()
            status = run_within(self.command(stage), self.folder, limit_s, stream)
        self.save()
        if status is None:
            return f"stopped after {limit_s:.0f} s"
        if status == SOME_JOB_FAILED:
            return "done, exit status 1"  # a job failed, as planted faults must
        return "done" if status == 0 else f"exit status {status}"

    def tell(self, said: Mapping[str, object]) -> None:
        """Write what was done into the folder to keep."""
        (self.keep / "campaign.json").write_text(json.dumps(said, indent=1) + "\n")

    def command(self, stage: Stage) -> list[str]:
        """Its whole command line, sized as asked."""
        words = list(stage.command)
        if words[0] == "orchestrator":
            words[2] = str(self._spec(words[2]))
            words += ["--db", str(self.database)]
            if not stage.all_gpus:
                words += ["--gpus", self.gpus] if self.gpus else []
            if self.divisor > 1:
                words = [re.sub(r"(?<=hidden_dim=)\d+", self._divided, word) for word in words] + [*TINY]
        elif words[0] == "benchmarks.stranger":
            words += ["--db", str(self.database)] + (["--gpus", self.gpus] if self.gpus else [])
            words += ["--set", "hidden_dim=64"] if self.divisor > 1 else []
        else:
            words += self._benchmark(words[0])
        if self.divisor > 1 and "model=qwen2.5-7b" in words:
            words += replaced(
                model="transformer", hidden_dim=64, vocab_size=500, hold_bytes=1000000, dwell_s=0
            )
        return [sys.executable, "-m", *words]

    def _benchmark(self, module: str) -> list[str]:
        """What a benchmark is told besides: where it works, where its figures go, its size, its limit."""
        name = module.removeprefix("benchmarks.")
        words = ["--folder", name, "--save", str(self.keep / f"{name}.json")]
        words += ["--gpus", self.gpus] if self.gpus else []
        words += TINY if self.divisor > 1 else ()
        if name == "instrument_cost":
            sizes = [str(size // self.divisor) for size in (4096, 8192)]
            blocks = ["60", "40"] if self.divisor == 1 else ["4", "4"]
            return [*words, "--hidden-dim", *sizes, "--blocks", *blocks]
        hidden_dim = 4096 if name == "example_loop" else 12288
        words += ["--hidden-dim", str(hidden_dim // self.divisor), "--nlayers", "8"]
        if name == "example_loop":
            return [*words, "--script", str(self.script), "--db", str(self.database)]
        return [*words, "--limit-s", f"{self.until - RESERVE_S - time.monotonic():.0f}"]

    def _divided(self, size: re.Match[str]) -> str:
        return str(int(size[0]) // self.divisor)

    def _spec(self, name: str) -> Path:
        """The sweep file, or one beside the database with every size divided."""
        path = ROOT / "sweeps" / f"{name}.yaml"
        if self.divisor == 1:
            return path
        small = self.folder / path.name
        small.write_text(smaller(path.read_text(encoding="utf-8"), self.divisor), encoding="utf-8")
        return small

    def save(self) -> None:
        """Copy the databases that are worked on into the folder to keep, each whole or not at all."""
        self._export(self.database, self.keep / self.database_name)
        self._export(self.folder / PARITY, self.keep / PARITY)

    def _export(self, source: Path, target: Path) -> None:
        if not source.exists():
            return
        fresh = self.folder / "export.db"
        fresh.unlink(missing_ok=True)
        export = ["db", "export", str(fresh), "--without-samples", "--db", str(source)]
        subprocess.run([sys.executable, "-m", "orchestrator", *export], check=True, capture_output=True,
                       env=environment(), timeout=120)  # fmt: skip
        without_folders(fresh)
        target.parent.mkdir(exist_ok=True)
        moved = target.with_suffix(".part")
        shutil.copyfile(fresh, moved)
        moved.replace(target)


def environment() -> dict[str, str]:
    """With this checkout importable from any folder."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path}


def run_within(command: Sequence[str], folder: Path, limit_s: float, log: object) -> int | None:
    """The exit status, or None if it was stopped: asked first, so that a sweep can write down what it has."""
    process = subprocess.Popen(
        command, cwd=folder, stdout=log, stderr=log, env=environment(), start_new_session=True  # type: ignore[call-overload]
    )  # fmt: skip
    try:
        return int(process.wait(limit_s))
    except subprocess.TimeoutExpired:
        # Not SIGINT: what a shell starts in the background ignores it, and so would its children.
        os.killpg(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return None


def smaller(spec: str, divisor: int) -> str:
    """The sweep file with every ``hidden_dim`` divided."""

    def divide(found: re.Match[str]) -> str:
        sizes = re.sub(r"\d+", lambda size: str(max(int(size[0]) // divisor, 8)), found[2])
        return found[1] + sizes

    return re.sub(r"(hidden_dim: )(\[[^\]]*\]|\d+)", divide, spec)


def main() -> None:
    """Runs the parts named; exit status 1 if a stage ended otherwise than well or out of time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help="one, two, four, example, parity, or a stage"
    )
    parser.add_argument(
        "--list", action="store_true", help="print the stages and what they are expected to take"
    )
    parser.add_argument("--keep", type=Path, default=Path("campaign"), help="where the results go")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "orch-campaign")
    parser.add_argument("--db", type=Path, default=DATABASE, help="measurements to begin with")
    parser.add_argument("--limit-s", type=float, default=570, help="of the whole call")
    parser.add_argument("--gpus", default="0", help="devices of the one-GPU stages; empty on a CPU")
    parser.add_argument("--script", type=Path, help="the example's offload_states.py")
    parser.add_argument("--touch-gb", type=float, default=0.0, help="memory of the host to use once first")
    parser.add_argument("--divide", type=int, default=1, metavar="N", help="sizes, to try the mechanics")
    options = parser.parse_args()
    chosen = [stage for part in options.parts for stage in STAGES if part in (stage.part, stage.name)]
    if options.list or not chosen:
        for stage in STAGES:
            print(f"{stage.part:8s} {stage.expected_s:5.0f} s  {stage.name}: {' '.join(stage.command)}")
        sys.exit(0 if options.list else 2)
    if any(stage.part == "example" for stage in chosen) and options.script is None:
        parser.error("--script: the example's own script is needed")
    began = time.monotonic()
    touched = touch_memory(int(options.touch_gb * 1e9)) if options.touch_gb else None
    campaign = Campaign(
        options.folder.resolve(), options.keep.resolve(), began + options.limit_s, options.divide,
        options.script and options.script.resolve(strict=True), options.gpus, options.db.name,
    )  # fmt: skip
    campaign.begin(options.db)
    about = {"parts": options.parts, "touched": touched and asdict(touched)}
    print(f"memory touched: {touched}", flush=True)
    stages: list[dict[str, object]] = []
    endings: dict[str, str] = {}
    for stage in chosen:
        started = time.monotonic()
        endings[stage.name] = campaign.run(stage)
        took_s = time.monotonic() - started
        print(f"{started - began:6.1f} s  {stage.name}: {endings[stage.name]} ({took_s:.1f} s)", flush=True)
        stages.append({"stage": stage.name, "ending": endings[stage.name], "took_s": round(took_s, 1)})
        campaign.tell({**about, "stages": stages, "jobs": counts(campaign.database)})
    print(json.dumps(counts(campaign.database), indent=1))
    sys.exit(any(ending.startswith("exit") for ending in endings.values()))


if __name__ == "__main__":
    main()
