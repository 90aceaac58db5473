"""Charts of labels, character by character and bar by bar."""

from __future__ import annotations

from xml.etree import ElementTree

from syft.federated.partition import LabelCounts, svg_chart, text_chart

SVG = "{http://www.w3.org/2000/svg}"


def test_a_column_is_as_high_as_its_count() -> None:
    chart = text_chart(LabelCounts([0, 1, 2, 3, 4], [[16, 8, 2, 1, 0]]))
    assert chart.splitlines() == [
        "27 samples, labels 0 to 4, a column each (█ is 16)",
        "client 0  █▄▁▁·  27",
    ]


def test_many_labels_share_columns() -> None:
    counts = LabelCounts(list(range(100)), [[1] * 100, [0] * 99 + [3]])
    first, one, other = text_chart(counts).splitlines()
    assert first == "103 samples, labels 0 to 99, 3 to a column (█ is 3)"
    assert one == f"client 0  {'█' * 33}▃  100"
    assert other == f"client 1  {'·' * 33}█  3"
    assert counts.grouped().labels[:3] == [0, 3, 6]


def test_names_of_clients_line_up() -> None:
    lines = text_chart(LabelCounts([0], [[1]] * 11)).splitlines()
    assert lines[1] == "client 0   █  1" and lines[-1] == "client 10  █  1"


def test_without_samples_there_is_nothing_to_draw() -> None:
    empty = LabelCounts([], [[], []])
    assert text_chart(empty).splitlines() == ["0 samples", "client 0    0", "client 1    0"]
    assert "<rect" not in svg_chart(empty)


def test_bars_stand_side_by_side_and_are_as_long_as_their_counts() -> None:
    root = ElementTree.fromstring(svg_chart(LabelCounts([7, "<b>"], [[30, 10], [0, 20]])))
    bars = [
        (rect.get("y"), float(rect.get("x", "")), float(rect.get("width", "")))
        for rect in root.iter(f"{SVG}rect")
    ]
    assert bars == [("2", 80.0, 360.0), ("2", 440.0, 120.0), ("24", 80.0, 240.0)]
    titles = [title.text for title in root.iter(f"{SVG}title")]
    assert titles == ["label 7: 30", "label <b>: 10", "label <b>: 20"]
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert texts == ["client 0", "40", "client 1", "20"]
