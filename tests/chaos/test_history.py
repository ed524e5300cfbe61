"""What is written down is read again; what a kill cut off is left out."""

from __future__ import annotations

from chaos.history import Fate, History, TextFate, line, read


def fate(name: str, **more: object) -> Fate:
    return Fate(id=name, method="Translate", texts=("Grüße",), due=1.0, sent=1.01, **more)  # type: ignore[arg-type]


def test_a_history_is_read_as_it_was_written(tmp_path):
    history = History()
    history.add(fate("a-1", ended=2.0, code="OK", results=[TextFate(0, "OK", "greetings")], request_id="a-1"))
    history.add(fate("a-2"))
    history.save(tmp_path / "history.jsonl")
    assert read(tmp_path / "history.jsonl") == list(history)


def test_a_line_that_was_cut_off_is_left_out(tmp_path):
    path = tmp_path / "history.jsonl"
    path.write_text(line(fate("a-1")) + line(fate("a-2"))[:-20], encoding="utf-8")
    assert [each.id for each in read(path)] == ["a-1"]


def test_ids_are_used_once_also_by_clients_of_one_name():
    history = History()
    assert history.new_id("a") != history.new_id("a")


def test_a_request_without_an_end_takes_for_ever_and_is_not_good():
    assert fate("a-1").milliseconds == float("inf")
    assert not fate("a-1").good
    assert not fate("a-1", ended=2.0, code="OK", results=[TextFate(0, "INTERNAL")]).good
    assert fate("a-1", ended=2.0, code="OK").milliseconds == 1000.0


def test_of_a_text_that_is_far_too_long_only_the_beginning_is_written():
    large = Fate(id="a-1", method="Translate", texts=("x" * 1_000_000,), due=1.0, sent=1.0)
    assert len(line(large)) < 1000
