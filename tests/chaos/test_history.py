"""A history is read as it was written, without a line that a kill cut off."""

from __future__ import annotations

from chaos.verdict.history import History, Outcome, TextOutcome, line, read


def short(name: str, **more: object) -> Outcome:
    return Outcome(id=name, method="Translate", texts=("Grüße",), due=1.0, sent=1.01, **more)  # type: ignore[arg-type]


def test_a_history_is_read_as_it_was_written(tmp_path):
    history = History()
    history.add(short("a-1", ended=2.0, code="OK", results=[TextOutcome(0, "OK", "greetings")], request_id="a-1"))
    history.add(short("a-2"))
    history.save(tmp_path / "history.jsonl")
    assert read(tmp_path / "history.jsonl") == list(history)


def test_a_line_separator_in_a_text_ends_no_line(tmp_path):
    history = History()
    history.add(short("a-1", ended=2.0, code="OK", results=[TextOutcome(0, "OK", "a\u2028b\u2029c\u0085d")]))
    history.save(tmp_path / "history.jsonl")
    assert read(tmp_path / "history.jsonl") == list(history)


def test_a_line_that_was_cut_off_is_left_out(tmp_path):
    path = tmp_path / "history.jsonl"
    path.write_text(line(short("a-1")) + line(short("a-2"))[:-20], encoding="utf-8")
    assert [each.id for each in read(path)] == ["a-1"]


def test_ids_are_unique_also_for_clients_with_the_same_name():
    history = History()
    assert history.new_id("a") != history.new_id("a")


def test_a_request_without_an_end_has_an_infinite_latency_and_is_not_good():
    assert short("a-1").milliseconds == float("inf")
    assert not short("a-1").good
    assert not short("a-1", ended=2.0, code="OK", results=[TextOutcome(0, "INTERNAL")]).good
    assert short("a-1", ended=2.0, code="OK").milliseconds == 1000.0


def test_only_the_beginning_of_a_very_long_text_is_written():
    large = Outcome(id="a-1", method="Translate", texts=("x" * 1_000_000,), due=1.0, sent=1.0)
    assert len(line(large)) < 1000
