"""Which results can be compared as ratios, and is more of them better?"""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.errors import SpecError

DEFAULT_METRICS = ("offload_s_median", "reload_s_median")

MORE_IS_BETTER: dict[str, bool] = {
    "step_s_median": False,
    "offload_s_median": False,
    "offload_s_p95": False,
    "offload_s_min": False,
    "offload_s_max": False,
    "offload_host_s_median": False,
    "offload_all_s_median": False,
    "offload_cold_s": False,
    "reload_s_median": False,
    "reload_s_p95": False,
    "reload_s_min": False,
    "reload_s_max": False,
    "reload_host_s_median": False,
    "reload_all_s_median": False,
    "reload_cold_s": False,
    "cold_pinning_s": False,
    "copied_bytes": False,
    "freed_bytes": True,
    "device_freed_bytes": True,
    "pinned_bytes": False,
    "peak_reload_bytes": False,
    "offload_gbps": True,
    "reload_gbps": True,
    "link_down_gbps": True,
    "link_up_gbps": True,
    "offload_link_share": True,
    "reload_link_share": True,
    "wall_s": False,
    "loop_s": False,
}
"""Columns of ``job_summary`` that are positive on a ratio scale. Slopes and flags are not."""


def check_metrics(names: Sequence[str]) -> tuple[str, ...]:
    """The names without repetitions, in their order.

    Raises:
        SpecError: a name that is not a metric, or none at all.
    """
    for name in names:
        if name not in MORE_IS_BETTER:
            raise SpecError(
                f"'{name}' is not a metric that can be compared",
                "--metric",
                "use " + ", ".join(MORE_IS_BETTER),
            )
    if not names:
        raise SpecError("no metric is named", "--metric", "use " + ", ".join(DEFAULT_METRICS))
    return tuple(dict.fromkeys(names))
