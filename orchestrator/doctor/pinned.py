"""Does the largest cell of the shipped full sweep fit into this host's RAM once it is pinned?"""

from __future__ import annotations

from importlib.resources import as_file, files

from orchestrator.doctor.devices import Driver
from orchestrator.doctor.finding import Finding, ok, size, warn
from orchestrator.launch.devices import ram_bytes


def largest_pinned_bytes() -> tuple[int, int]:
    """Pinned and copied bytes of a host's ranks, for the cell of full.yaml that pins most."""
    from orchestrator.spec.bytes import predict
    from orchestrator.spec.load import load_plan

    with as_file(files("orchestrator") / "sweeps" / "full.yaml") as path:
        plan = load_plan(path)
    largest = (0, 0)
    for cell in plan.cells:
        prediction = predict(cell)
        if prediction.pinned_bytes is None or prediction.copied_bytes is None:
            continue
        largest = max(
            largest, (prediction.pinned_bytes * cell.num_gpus, prediction.copied_bytes * cell.num_gpus)
        )
    return largest


def check_pinned(driver: Driver | str) -> list[Finding]:
    """Pinned buffers are rounded up to powers of two: say what that makes of the full sweep."""
    if isinstance(driver, str) or not driver.devices:
        return []
    pinned, states = largest_pinned_bytes()
    ram = ram_bytes()
    message = (
        f"pinned buffers are rounded up to powers of two: the largest cell of sweeps/full.yaml takes "
        f"{size(pinned)} of host RAM for {size(states)} of state"
    )
    evidence = f"{size(ram)} of RAM for this process"
    mend = "pin_backend: exact where torch can, or smaller cells: orch plan says which ones fit"
    if pinned > ram:
        # Such cells are skipped, with the arithmetic: nothing fails.
        return [warn("pinned", f"{message}: more than there is", evidence, mend)]
    if pinned > ram // 2:
        return [warn("pinned", message, evidence, mend)]
    return [ok("pinned", message, evidence)]
