from __future__ import annotations

from html.parser import HTMLParser

import pytest
from test_reporters_samples import EVERY, HOSTILE, hostile, stale_head

from weaklink.agent.reporters.html import render_html
from weaklink.collector.evidence import BOUNDARIES

VOID = {"meta", "br", "path", "circle", "link", "img"}


class Page(HTMLParser):
    """Collects elements and text, and checks that every element is closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()
        assert self.stack == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def tags(self) -> set[str]:
        return {tag for tag, _ in self.elements}


@pytest.mark.parametrize("name", EVERY)
def test_one_offline_file(name: str) -> None:
    text = render_html(EVERY[name]())
    page = Page(text)
    assert not page.tags() & {"script", "link", "iframe", "object", "embed", "img", "base", "form", "a"}
    for tag, attributes in page.elements:
        assert not {"src", "href", "srcset", "style"} & set(attributes), tag
        assert not any(attribute.startswith("on") for attribute in attributes), tag
    style = text.split("<style>")[1].split("</style>")[0]
    assert not any(word in style for word in ("@import", "@font-face", "url("))
    policy = next(attributes for tag, attributes in page.elements if attributes.get("http-equiv"))
    assert policy["content"] == "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    assert all(char == "\n" or char.isprintable() for char in text)


@pytest.mark.parametrize("name", [name for name in EVERY if name != "interrupted"])
def test_all_boundaries_are_there(name: str) -> None:
    text = " ".join(Page(render_html(EVERY[name]())).text)
    assert all(boundary in text for boundary in BOUNDARIES)


def test_stale_head_tells_the_whole_story() -> None:
    text = " ".join("".join(Page(render_html(stale_head())).text).split())
    for said in (
        "<-- FIRST DIVERGENCE",
        "Cause supported · action proposed · recovery not attempted",
        "0.6836 -> 0.4099",
        "c1a1" * 16,
        "9" * 64,
        "OWNERSHIP/owned fails: 0/2",
        "Must stay unchanged",
        "2.13.0+cpu",
        "Repair: that a repaired script learns.",
        "no model was asked",
    ):
        assert said in text
    assert text.count("<-- FIRST DIVERGENCE") == 1


def test_remarks_stand_above_the_chain() -> None:
    text = "".join(Page(render_html(EVERY["cut_short"]())).text)
    note, problems, table = (text.index(said) for said in ("interrupted by the user", "2 problems of", "Section"))
    assert note < problems < table
    assert "rows of UPDATE: KeyError: 3" in text


def test_digests_are_set_as_code_and_short_in_tables() -> None:
    text = render_html(stale_head())
    assert f'<dd class="digest">{"9" * 64}</dd>' in text
    assert '<dd class="digest">' not in text.split("<h2>Frozen</h2>")[0]
    assert ">= 5e1f5e1f5e1f…</td>" in text


def test_the_caption_explains_only_curves_that_are_drawn() -> None:
    assert "Control is the script as it stands" in render_html(stale_head())
    assert "Control is the script as it stands" not in render_html(EVERY["frozen_only"]())


def test_failed_predictions_stand_out() -> None:
    cells = [attributes for tag, attributes in Page(render_html(stale_head())).elements if tag == "td"]
    assert sum(cell.get("class") == "bad" for cell in cells) == 5


def test_first_divergence_has_its_own_class_and_words() -> None:
    rows = [attributes for tag, attributes in Page(render_html(stale_head())).elements if tag == "tr"]
    assert [row["class"] for row in rows if "first" in str(row.get("class"))] == ["fail first"]


def test_refused_answers_keep_their_violations() -> None:
    text = "".join(Page(render_html(EVERY["raised"]())).text)
    assert "answered by advisor openai, refused" in text
    assert "cited row OWNERSHIP/owned does not exist" in text


def test_hostile_text_is_inert() -> None:
    text = render_html(hostile())
    assert "<script" not in text
    assert "alert(1)&lt;/script&gt;" in text
    assert HOSTILE not in "".join(Page(text).text)
    assert "\\x1b[31m\\n| `x` |\\u202eabc\\x07" in "".join(Page(text).text)


def test_expressions_in_data_are_not_evaluated() -> None:
    sample = stale_head()
    sample.answered[0].proposal.mechanisms[0].explanation = "{{ 7 * 7 }} {% raw %}"
    assert "{{ 7 * 7 }} {% raw %}" in "".join(Page(render_html(sample)).text)
