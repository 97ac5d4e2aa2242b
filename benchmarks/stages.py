"""What docs/findings.md needs to be measured, the most useful first, and how long each may take."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stage:
    """One thing to run.

    Attributes:
        part: which call it belongs to.
        command: after ``python -m``.
        expected_s: on an H200 host, from the first runs there; the limit of the stage is half as much again.
        all_gpus: it may use every GPU; the others keep to the first.
        least_s: with less left it is not begun; a sweep needs as long to start its server and to deliver
            one job.
    """

    name: str
    part: str
    command: tuple[str, ...]
    expected_s: float
    all_gpus: bool = False
    least_s: float = 25.0


def sweep(spec: str, *words: str, probe: bool = False) -> tuple[str, ...]:
    """The command of a sweep; the link is measured around those that ask for it."""
    return ("orchestrator", "sweep", spec, "--quiet", *words, *(() if probe else ("--no-probe",)))


def replaced(**values: object) -> tuple[str, ...]:
    """``--set`` for each axis."""
    return tuple(word for name, value in values.items() for word in ("--set", f"{name}={value}"))


SLEEP_7B = {"model": "qwen2.5-7b", "num_gpus": 2, "gc_freeze": "false", "repeats": 1, "warmup": 2}

STAGES = (
    # One GPU. The link is measured before and after the first.
    Stage("findings", "one", sweep("findings", *replaced(repeats=1), probe=True), 350),
    # Forty iterations of each turn at 8192 take 88 s, sixty at 4096 take 42; the rest is their starts.
    Stage("instrument", "one", ("benchmarks.instrument_cost",), 170, least_s=170),
    Stage("known_faults", "one", sweep("known_faults"), 45),
    Stage("stranger", "one", ("benchmarks.stranger",), 45),
    # A rank that sleeps three hundred times: does it become slower, does it hold on to memory?
    Stage(
        "cycles", "one",
        sweep(
            "quickstart", "--name", "cycles",
            *replaced(hidden_dim=2048, nlayers=8, iteration=300, warmup=5, repeats=1, pin_memory="true",
                      non_blocking="true", reload_non_blocking="true", gc_freeze="true"),
        ), 45,
    ),
    Stage("bytes", "one", sweep("bytes"), 190, all_gpus=True),
    Stage("findings again", "one", sweep("findings"), 330),
    # Two.
    Stage(
        "sleep 7B", "two",
        sweep(
            "rlhf_sleep", "--name", "sleep_7b",
            *replaced(**SLEEP_7B, iteration=6, dwell_s=2, hold_bytes="16e9", pin_backend="host_register:16"),
            probe=True,
        ), 190, all_gpus=True,
    ),
    Stage("scaling", "two", sweep("scaling", probe=True), 170, all_gpus=True),
    Stage("bytes, two ranks", "two", sweep("bytes", "--name", "bytes-2", *replaced(num_gpus=2)), 190,
          all_gpus=True),
    Stage(
        "sleep 7B, pinned by torch's default", "two",
        sweep(
            "rlhf_sleep", "--name", "sleep_7b_default",
            *replaced(**SLEEP_7B, iteration=4, dwell_s=0, hold_bytes=0, included_state="all"),
        ), 110, all_gpus=True,
    ),
    # Four: the example's published case, a trial of the four settings after the other (about five minutes
    # each, most of it pageable copies), and the same size a rank on one, two and four.
    Stage("scaling, four ranks", "four", sweep("scaling", probe=True), 150, all_gpus=True),
    Stage("published", "four", sweep("deepspeed_example", probe=True), 1500, all_gpus=True),
    # Against the example's own loop: 34 s for each of its eight commands, of which half run before orch and
    # half after it, then 11 s for each of orch's eight jobs and 10 s for its server. It is of use as soon as
    # the first half and one job of each setting are there. A sweep of its own, since it is timed as a whole.
    Stage(
        "example", "example",
        ("benchmarks.example_loop", "--name", "example_loop", "--trials", "2", "--orch-trials", "2"),
        8 * 34 + 8 * 11 + 10, least_s=4 * 34 + 4 * 11 + 10,
    ),
    # A job by the deepspeed command takes 25 s before its loop whatever is in it, so rounds are few and the
    # cell has to be one whose jobs hardly differ. At 4096 × 8 ten jobs of one cell have offloads with a
    # standard deviation of 5 to 15 % (sweep example_4096): Python's collector is most of them, pageable
    # copies are no steadier, and four rounds would not tell 3 %. From 12288 × 8 on the collection hides
    # behind pinned copies, heap not frozen: iterations of a process lie within 1 %, and at 16384, where a
    # round would take twice as long, three jobs of three cells within 0.4 % (sweep findings). Pinning by
    # registration saves each job 15 s. The last iteration is timed part by part: that shows the collection,
    # which the times no longer do. Some 115 s a round, four in a call; a second call narrows the interval.
    Stage(
        "parity", "parity",
        ("benchmarks.parity", "--rounds", "12", "--iteration", "6",
         *replaced(pin_memory="true", non_blocking="true", reload_non_blocking="true", gc_freeze="false",
                   pin_backend="host_register:16", warmup=1, instrumented=1)), 530, least_s=130,
    ),
)  # fmt: skip
