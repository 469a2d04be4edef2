from __future__ import annotations

import math
import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_reporters_samples import falling, frozen_only, rerun, stale_head

from weaklink.agent.reporters.curves import Curve, curves
from weaklink.agent.reporters.scale import count_scale, value_scale
from weaklink.agent.reporters.svg import HEIGHT, WIDTH, description, gap_notes, loss_figure, tick_labels

NAN, INF = math.nan, math.inf


def curve(values: list[float], role: str = "control") -> Curve:
    return Curve(role, tuple(enumerate(values, start=1)))


def checked(figure: str) -> ElementTree.Element:
    root = ElementTree.fromstring(figure)
    for path in root.iter("path"):
        numbers = [float(found) for found in re.findall(r"-?[\d.]+", path.attrib["d"])]
        assert all(0 <= found <= max(WIDTH, HEIGHT) for found in numbers)
    return root


@given(st.lists(st.floats(), max_size=12), st.lists(st.floats(), max_size=12))
def test_any_numbers_can_be_drawn(first: list[float], second: list[float]) -> None:
    drawn = [curve(first), curve(second, "treatment")]
    figure = loss_figure(drawn)
    assert "nan" not in "".join(re.findall(r' d="[^"]*"', figure))
    if first or second:
        checked(figure)
    else:
        assert figure == ""


@pytest.mark.parametrize(
    "values",
    [[], [0.5], [0.5] * 9, [0.0] * 3, [NAN] * 4, [INF, -INF], [-1e308, 1e308], [5e-324, 1e308], [1e16, 1e16 + 2]],
)
def test_degenerate_series(values: list[float]) -> None:
    figure = loss_figure([curve(values)])
    if values:
        checked(figure)


def test_non_finite_values_are_gaps_and_named() -> None:
    drawn = curve([0.7, 0.6, NAN, INF, 0.5, NAN, 0.4, 0.3])
    root = checked(loss_figure([drawn]))
    lines = [path for path in root.iter("path") if path.attrib["class"] == "curve control"]
    assert len(lines) == 3  # two runs and the legend
    assert len(list(root.iter("circle"))) == 1
    assert gap_notes([drawn]) == ["control: 3 not finite, the first at backward call 3; shown as gaps."]
    assert gap_notes([curve([0.1])]) == []


def test_many_points_are_thinned_and_the_last_kept() -> None:
    figure = loss_figure([curve([float(index) for index in range(100_000)])])
    assert len(figure) < 40_000
    assert "L704.0 " in figure


def test_a_wide_range_of_positive_losses_is_logarithmic() -> None:
    assert value_scale([0.69, 9.8e7], 0, 1).log
    assert not value_scale([0.69, 0.4], 0, 1).log
    assert not value_scale([-1.0, 1e6], 0, 1).log
    assert "loss (log)" in loss_figure([curve([0.69, 9.8e7, 1.2e26])])


def test_axes() -> None:
    scale = count_scale([1, 50], 0.0, 490.0)
    assert scale(1) == 0.0
    assert scale(50) == 490.0
    assert scale.ticks() == [10, 20, 30, 40, 50]
    assert tick_labels([0.683606, 0.6836061]) == ["0.683606", "0.6836061"]
    assert tick_labels([0.4, 0.5]) == ["0.4", "0.5"]


def test_observed_run_is_shown_as_far_as_the_reruns_went() -> None:
    drawn = {item.role: item for item in curves(stale_head())}
    assert list(drawn) == ["observed", "control", "placebo", "treatment"]
    assert len(drawn["observed"].points) == 51
    alone = curves(frozen_only())
    assert [(item.role, len(item.points)) for item in alone] == [("observed", 301)]


def test_a_second_control_that_differs_is_shown() -> None:
    sample = replace(stale_head(), reruns=[rerun("control", [0.7] * 3), rerun("control_again", [0.7, 0.7, 0.6])])
    assert [item.name for item in curves(sample)] == ["observed", "control", "control 2"]


def test_the_figure_is_described_in_words() -> None:
    drawn = [curve(falling(), "treatment")]
    assert description(drawn) == "treatment: 0.6836 at call 1, 0.4099 at call 51."
    assert loss_figure(drawn).count("<title") == 1
