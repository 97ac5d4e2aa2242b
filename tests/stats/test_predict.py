"""Seconds from measured sizes, bytes from the formula, and what is refused."""

from __future__ import annotations

import io
import json
from pathlib import Path
from statistics import median

import pytest
from pandas import DataFrame

from orchestrator.analysis.estimate import MOST_EXTRAPOLATION
from orchestrator.analysis.leave_out import leave_largest_out
from orchestrator.analysis.predict import Outlook, outlook
from orchestrator.analysis.questions import make_question
from orchestrator.analysis.sides import read_only
from orchestrator.analysis.sources import measured_or_none
from orchestrator.errors import SpecError
from orchestrator.render.prediction import render_outlook
from orchestrator.store.queries_stats import measured_jobs
from tests.stats import h200
from tests.stats.golden_files import assert_golden

FAST = ("pin_memory=true", "non_blocking=true")


def measured(path: Path, **options: object) -> DataFrame:
    h200.fill(path / "orch.db", **options)  # type: ignore[arg-type]
    with read_only(str(path / "orch.db")) as store:
        return measured_jobs(store)


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    return measured(tmp_path_factory.mktemp("h200"))


def ask(
    jobs: DataFrame | None, *settings: str, params: float | None = None, host: str | None = None
) -> Outlook:
    return outlook(make_question(settings, parameters=params, host=host), jobs, "elsewhere")


def test_the_largest_size_left_out_is_foretold_within_a_tenth(jobs: DataFrame) -> None:
    left_out = leave_largest_out(jobs)
    assert len(left_out) == 2 * len(h200.SETTINGS)
    assert median(found.error_share for found in left_out) <= 0.10
    assert max(found.error_share for found in left_out) <= 0.10


def test_a_size_in_between_is_foretold_with_an_interval_that_holds_the_truth(jobs: DataFrame) -> None:
    (found,) = ask(jobs, "hidden_dim=8192", "nlayers=12", *FAST).settings
    assert found.offload is not None
    assert found.reload is not None
    assert found.bytes.copied_bytes is not None
    offload, reload = h200.seconds("pin1 nb1", found.bytes.copied_bytes)
    assert found.offload.low_s < offload < found.offload.high_s
    assert found.reload.low_s < reload < found.reload.high_s
    assert found.offload.seconds == pytest.approx(offload, rel=0.05)
    assert found.warnings == ()


def test_a_collection_that_hides_behind_copies_is_recognised_and_one_that_does_not(jobs: DataFrame) -> None:
    (hidden,) = ask(jobs, "hidden_dim=8192", "nlayers=12", *FAST).settings
    (added,) = ask(jobs, "hidden_dim=8192", "nlayers=12", "pin_memory=true", "non_blocking=false").settings
    assert hidden.offload is not None
    assert added.offload is not None
    assert hidden.offload.form.startswith("longer of collection")
    assert added.offload.form.startswith("fixed +")


def test_bytes_of_the_walkthrough_model(jobs: DataFrame) -> None:
    (found,) = ask(jobs, "num_gpus=2", *FAST, params=7.6e9).settings
    assert round((found.bytes.freed_bytes or 0) / 1e9, 1) == 61.8
    assert round((found.bytes.pinned_bytes or 0) / 1e9, 1) == 68.7
    assert round((found.pinned_node_bytes or 0) / 1e9) == 137


def test_without_a_setting_every_measured_one_is_answered_fastest_first(jobs: DataFrame) -> None:
    found = ask(jobs, "hidden_dim=8192", "nlayers=8").settings
    totals = [s.offload.seconds + s.reload.seconds for s in found if s.offload and s.reload]
    assert len(totals) == len(h200.SETTINGS)
    assert totals == sorted(totals)


def test_a_rank_count_that_was_not_measured_is_answered_with_a_warning_and_a_wider_interval(
    jobs: DataFrame,
) -> None:
    (one,) = ask(jobs, "hidden_dim=8192", "nlayers=8", *FAST).settings
    (two,) = ask(jobs, "hidden_dim=8192", "nlayers=16", "num_gpus=2", *FAST).settings
    assert one.offload is not None
    assert two.offload is not None
    assert two.warnings == ("num_gpus as measured at 1, not 2",)
    assert two.offload.high_s / two.offload.seconds > one.offload.high_s / one.offload.seconds


def test_beyond_the_measured_range_the_interval_widens_then_is_refused(jobs: DataFrame) -> None:
    (wide,) = ask(jobs, "hidden_dim=16384", "nlayers=16", *FAST).settings
    (inside,) = ask(jobs, "hidden_dim=16384", "nlayers=8", *FAST).settings
    assert wide.offload is not None
    assert inside.offload is not None
    assert "EXTRAPOLATED" in wide.warnings[0]
    assert wide.offload.high_s / wide.offload.seconds > inside.offload.high_s / inside.offload.seconds
    (refused,) = ask(jobs, "hidden_dim=16384", "nlayers=40", *FAST).settings
    assert refused.offload is None
    assert f"at most {MOST_EXTRAPOLATION:g} times" in refused.refusal


def test_a_setting_that_was_never_measured_is_refused_and_the_measured_ones_named(jobs: DataFrame) -> None:
    (found,) = ask(jobs, "hidden_dim=8192", "nlayers=8", "pin_backend=host_register").settings
    assert found.offload is None
    assert "never measured here; measured: pin_memory=false non_blocking=false" in found.refusal
    assert found.bytes.freed_bytes == 9_590_983_168


def test_two_sizes_are_too_few_for_a_third(tmp_path: Path) -> None:
    two = measured(tmp_path, sizes=h200.SIZES[:2], settings=["pin1 nb1"])
    (found,) = ask(two, "hidden_dim=8192", "nlayers=8", *FAST).settings
    assert found.offload is None
    assert "measured at 2 sizes only (2.15 GB … 4.30 GB), 3 are needed" in found.refusal
    (same,) = ask(two, "hidden_dim=8192", "nlayers=4", *FAST).settings
    assert same.offload is not None
    assert same.offload.form == "as measured"


def test_hosts_are_never_mixed(tmp_path: Path, jobs: DataFrame) -> None:
    import pandas as pd

    slow = measured(tmp_path, host="gpu2", settings=["pin1 nb1"], sizes=h200.SIZES[:4])
    slow["offload_s_median"] *= 3
    both = pd.concat([jobs, slow])
    with pytest.raises(SpecError, match=r"several hosts were measured.*measured: gpu1, gpu2"):
        ask(both, *FAST)
    with pytest.raises(SpecError, match="nothing was measured on gpu3; times of one host"):
        ask(both, *FAST, host="gpu3")
    times = {}
    for host in ("gpu1", "gpu2"):
        (found,) = ask(both, "hidden_dim=8192", "nlayers=8", *FAST, host=host).settings
        assert found.offload is not None
        times[host] = found.offload.seconds
    assert times["gpu2"] == pytest.approx(3 * times["gpu1"], rel=0.05)


def test_stacks_are_never_mixed_the_last_measured_counts(tmp_path: Path, jobs: DataFrame) -> None:
    import pandas as pd

    newer = measured(tmp_path, deepspeed="0.20.0", settings=["pin1 nb1"])
    newer["offload_s_median"] *= 2
    found = ask(pd.concat([jobs, newer]), "hidden_dim=8192", "nlayers=8", *FAST)
    assert "deepspeed 0.20.0" in found.stack
    assert found.settings[0].offload is not None
    assert found.settings[0].offload.jobs == 15


def test_pinning_pays_after_its_cost_over_the_gain_of_a_cycle(jobs: DataFrame) -> None:
    (found,) = ask(jobs, "hidden_dim=16384", "nlayers=8", *FAST).settings
    assert found.payback is not None
    # 68.7 GB at 1.8 GB/s, 25.8 of them unasked; 4.85 + 3.53 s unpinned against 0.65 + 0.71 s.
    assert found.payback.cold_pinning_s == pytest.approx(38.2, rel=0.01)
    assert found.payback.against_pinning_s == pytest.approx(14.3, rel=0.01)
    assert found.payback.gain_s == pytest.approx(7.03, rel=0.05)
    assert found.payback.cycles == 4
    assert found.payback.against == "pin_memory=false non_blocking=true"


def test_where_its_twin_was_not_measured_pinning_is_held_against_the_fastest_unpinned_setting(
    jobs: DataFrame,
) -> None:
    other = jobs[~((jobs["pin_memory"] == False) & (jobs["non_blocking"] == True))]  # noqa: E712
    (found,) = ask(other, "hidden_dim=16384", "nlayers=8", *FAST).settings
    assert found.payback is not None
    assert found.payback.against == "pin_memory=false non_blocking=false"
    assert found.payback.against_pinning_s == 0
    none = jobs[jobs["pin_memory"] == True]  # noqa: E712
    assert ask(none, "hidden_dim=16384", "nlayers=8", *FAST).settings[0].payback is None


def test_a_measured_size_of_just_these_ranks_is_better_than_a_curve_of_others(jobs: DataFrame) -> None:
    import pandas as pd

    one = jobs[(jobs["hidden_dim"] == 8192) & (jobs["nlayers"] == 8)]
    two = one.assign(num_gpus=2, offload_s_median=1.25, ram_bytes=270e9)
    both = pd.concat([two, jobs[jobs["num_gpus"] == 1]])
    size = float(two["copied_bytes"].iloc[0])
    told = ask(both, "hidden_dim=8192", "nlayers=16", "num_gpus=2", *FAST)
    (found,) = told.settings
    assert found.bytes.copied_bytes == pytest.approx(size, rel=0.01)
    assert found.offload is not None
    assert (found.offload.form, found.offload.seconds) == ("as measured", 1.25)
    assert found.warnings == ()
    assert told.ram_bytes == 270e9  # of the machine that has two


def test_lines_of_a_prediction_are_broken_between_words_on_a_terminal(tmp_path: Path) -> None:
    from tests.report.test_terminal import on_terminal, widest

    shipped = Path(__file__).parents[2] / "docs" / "data" / "h200-x2.db"
    text = on_terminal(shipped, "predict", "--params", "7e9", "--num-gpus", "4", columns=100)
    assert widest(text) <= 100
    assert len([line for line in text.splitlines() if line.startswith("pin_memory=")]) >= 5


def test_a_folder_is_no_database_without_measurements(tmp_path: Path) -> None:
    from orchestrator.errors import DatabaseUnreachable

    with pytest.raises(DatabaseUnreachable, match="it is a folder"):
        measured_or_none(str(tmp_path))
    with pytest.raises(DatabaseUnreachable, match="no answer"):
        measured_or_none("postgres://nobody@127.0.0.1:1/none")


def test_more_pinned_memory_than_the_host_has_is_a_warning(jobs: DataFrame) -> None:
    out = io.StringIO()
    render_outlook(ask(jobs, "model=llama-2-13b", "num_gpus=2", *FAST), format="table", out=out)
    assert "more pinned memory than the host has" not in out.getvalue()
    out = io.StringIO()
    render_outlook(ask(jobs, "num_gpus=8", *FAST, params=60e9), format="table", out=out)
    assert "more pinned memory than the host has" in out.getvalue()


@pytest.mark.parametrize("format_", ["table", "json"])
def test_without_measurements_bytes_alone_and_what_to_run(tmp_path: Path, format_: str) -> None:
    assert measured_or_none(str(tmp_path / "none.db")) is None
    out = io.StringIO()
    render_outlook(ask(None, "num_gpus=2", params=7.6e9), format=format_, out=out)
    assert_golden(f"predict_bytes.{format_}", out.getvalue())


@pytest.mark.parametrize("format_", ["table", "json"])
def test_output_is_as_recorded(jobs: DataFrame, format_: str) -> None:
    out = io.StringIO()
    render_outlook(ask(jobs, "num_gpus=2", params=7.6e9), format=format_, out=out)
    assert_golden(f"predict.{format_}", out.getvalue())
    if format_ == "json":
        assert json.loads(out.getvalue())["settings"][0]["pinned_fits"] is True


@pytest.mark.parametrize(
    ("settings", "params", "message"),
    [
        (["hidden_dim=[1024, 2048]"], None, "one value of each axis"),
        (["hidden_dim=8192"], 7e9, "--params and hidden_dim both give the size"),
        ([], 0.0, "not a number of parameters"),
        ([], float("nan"), "not a number of parameters"),
        (["no_such=1"], None, "no_such"),
    ],
)
def test_a_wrong_question_is_an_error(settings: list[str], params: float | None, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        make_question(settings, parameters=params)


def test_sizes_that_lie_on_no_curve_foretell_nothing(jobs: DataFrame) -> None:
    rough = jobs.copy()
    # Each size a hundred times slower or faster than its neighbour, without order.
    rough["offload_s_median"] *= [100.0 ** (int(size) // 1000 % 3 - 1) for size in rough["copied_bytes"]]
    found = [
        s for s in ask(rough, "hidden_dim=8192", "nlayers=12").settings if "lie on no curve" in s.refusal
    ]
    assert found
    assert all(setting.offload is None and setting.reload is None for setting in found)


def test_where_nothing_was_measured_the_database_is_named() -> None:
    question = make_question((), parameters=7.6e9)
    (alone,) = outlook(question, None, "here", "typo.db").settings
    assert alone.refusal == "nothing was measured yet: there is no typo.db"
    (alone,) = outlook(question, DataFrame(), "here", "new.db").settings
    assert alone.refusal == "nothing was measured yet in new.db"


def test_a_small_model_is_counted_in_millions() -> None:
    assert ask(None, params=1.5e6).subject.startswith("1.5 million parameters")
    assert ask(None, params=7.6e9).subject.startswith("7.6 billion parameters")


def on_cpu(jobs: DataFrame) -> DataFrame:
    """The same times, as if a host without a device had given them."""
    return jobs.assign(accelerator="cpu", gpu_name=None, driver=None, device_bytes=None)


def test_measurements_of_a_cpu_promise_no_freed_device_memory_no_link_and_no_payback(jobs: DataFrame) -> None:
    out = io.StringIO()
    found = ask(on_cpu(jobs), "hidden_dim=8192", "nlayers=12", "num_gpus=2", *FAST)
    assert found.on_cpu
    render_outlook(found, format="table", out=out)
    text = out.getvalue()
    assert text.startswith("linear 8192×12 · bfloat16 · ZeRO-3 · all states · 2 ranks\n")
    assert "on a CPU nothing leaves the device; a GPU would free " in text
    assert "a GPU host would pin " in text
    assert "CPU only" in text
    assert "asleep" in text
    for untrue in (
        "frees",
        "a GPU · ",
        "GB/s",
        "of the link",
        "host RAM",
        "has paid",
        "warning: this is more",
    ):
        assert untrue not in text


def test_measurements_of_a_cpu_give_json_that_says_so(jobs: DataFrame) -> None:
    out = io.StringIO()
    render_outlook(ask(on_cpu(jobs), "hidden_dim=8192", "nlayers=12", *FAST), format="json", out=out)
    told = json.loads(out.getvalue())
    (setting,) = told["settings"]
    assert told["on_cpu"] is True
    assert setting["offload"]["seconds"] > 0
    assert setting["offload"]["gbps"] is None
    assert setting["offload"]["link_share"] is None
    assert setting["payback"] is None
    assert setting["pinned_fits"] is None


def test_one_host_that_is_not_this_one_speaks_only_for_itself_and_is_named(jobs: DataFrame) -> None:
    out = io.StringIO()
    render_outlook(ask(jobs, "hidden_dim=8192", "nlayers=12", *FAST), format="table", out=out)
    assert "as measured on gpu1: NVIDIA H200" in out.getvalue()
    with pytest.raises(SpecError, match="times of one host say nothing of another"):
        ask(jobs, "hidden_dim=8192", *FAST, host="gpu2")


@pytest.fixture(scope="module")
def shipped() -> DataFrame:
    found = measured_or_none(str(Path(__file__).parents[2] / "docs" / "data" / "h200-x2.db"))
    assert found is not None
    return found


REGISTERED = (
    "pin_memory=true",
    "non_blocking=true",
    "reload_non_blocking=true",
    "pin_backend=host_register:16",
)


@pytest.mark.parametrize("setting", [REGISTERED, (*REGISTERED, "gc_freeze=true")], ids=["usual", "frozen"])
def test_a_shipped_size_that_was_left_out_lies_in_the_interval(
    shipped: DataFrame, setting: tuple[str, ...]
) -> None:
    is_left_out = shipped["hidden_dim"] == 8192
    (found,) = ask(shipped[~is_left_out], "hidden_dim=8192", "nlayers=8", *setting).settings
    frozen = "gc_freeze=true" in setting
    mine = shipped[
        is_left_out
        & (shipped["sweep"] == "findings")
        & (shipped["pin_backend"] == "host_register:16")
        & (shipped["gc_freeze"] == frozen)
        & (shipped["included_state"] == "all")
    ]
    assert len(mine) == 1
    for estimate, column in ((found.offload, "offload_s_median"), (found.reload, "reload_s_median")):
        assert estimate is not None
        assert estimate.low_s < float(mine[column].iloc[0]) < estimate.high_s


def test_shipped_measurements_give_bytes_for_every_setting_and_seconds_or_a_reason(
    shipped: DataFrame,
) -> None:
    settings = ask(shipped, params=7.6e9).settings
    for setting in settings:
        assert setting.bytes.freed_bytes
        if setting.offload is None:
            assert "are needed" in setting.refusal or "is foretold" in setting.refusal
        else:
            assert any(warning.startswith("EXTRAPOLATED") for warning in setting.warnings)
    assert {setting.offload is None for setting in settings} == {True, False}
