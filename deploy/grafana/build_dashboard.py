"""Writes dashboards/lingon.json: what the dashboard shows is read here; what Grafana needs around it is in panels.py.

python deploy/grafana/build_dashboard.py [--check]: --check changes nothing and fails where the file is not up to date.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from panels import GREEN, HERE, ORANGE, RED, SOURCE, Json, graph, heatmap, quantile, quantiles, rate, share, stat, table

PATH = Path(__file__).parent / "dashboards" / "lingon.json"
MODEL = f'{HERE}, model=~"$model"'
PER_MODEL = "{{model}}/{{version}} {{instance}}"
FAILED = f'{HERE}, code=~"INTERNAL|UNKNOWN|UNAVAILABLE|DATA_LOSS"'
OVERLOAD = f'{HERE}, reason=~"QUEUE_FULL|WONT_FINISH|QUOTA_EXCEEDED"'
TRANSLATE = f'{HERE}, method="Translate"'
TEXTS_FULL = f"max(lingon_queue_depth{{{MODEL}}} / lingon_queue_limit{{{MODEL}}})"
TOKENS_FULL = f"max(lingon_queue_tokens{{{MODEL}}} / lingon_queue_tokens_limit{{{MODEL}}})"
LATENCY_STEPS = [(None, GREEN), (0.5, ORANGE), (2, RED)]
ROWS: dict[str, list[Json]] = {
    "Overview": [
        stat("Servers ready", f"sum(lingon_ready{{{HERE}}})", steps=[(None, RED), (1, GREEN)]),
        stat("Calls", f"sum({rate('lingon_requests_total')})", unit="reqps"),
        stat("Texts", f"sum({rate('lingon_texts_total')})", unit="cps"),
        stat(
            "Texts that fail",
            share(f"sum({rate('lingon_texts_total', FAILED)})", f"sum({rate('lingon_texts_total')})"),
            unit="percentunit",
            steps=[(None, GREEN), (0.001, ORANGE), (0.01, RED)],
            about="INTERNAL, UNKNOWN, UNAVAILABLE, DATA_LOSS. What callers got wrong is not among them.",
        ),
        *[
            stat(
                f"Translate, p{q * 100:g}",
                quantile(q, "lingon_request_duration_seconds", TRANSLATE),
                unit="s",
                steps=LATENCY_STEPS,
            )
            for q in (0.5, 0.95, 0.99)
        ],
        stat(
            "Fullest queue",
            f"{TEXTS_FULL} > {TOKENS_FULL} or {TOKENS_FULL}",
            unit="percentunit",
            steps=[(None, GREEN), (0.5, ORANGE), (0.9, RED)],
        ),
    ],
    "Traffic": [
        graph(
            "Calls by method",
            (f"sum by (method) ({rate('lingon_requests_total')}) > 0", "{{method}}"),
            unit="reqps",
            stacked=True,
        ),
        graph(
            "Calls by code",
            (f"sum by (code) ({rate('lingon_requests_total')}) > 0", "{{code}}"),
            unit="reqps",
            stacked=True,
        ),
        graph(
            "Texts by code",
            (f"sum by (code) ({rate('lingon_texts_total')}) > 0", "{{code}}"),
            unit="cps",
            stacked=True,
            about="A text that fails alone is a result of a call that is OK.",
        ),
    ],
    "Latency": [
        heatmap("Duration of Translate", "lingon_request_duration_seconds", TRANSLATE, "s"),
        graph(
            "Duration of calls, p99",
            (quantile(0.99, "lingon_request_duration_seconds", by="le, method"), "{{method}}"),
            unit="s",
        ),
        graph(
            "To the first token",
            *quantiles("lingon_time_to_first_token_seconds", MODEL),
            unit="s",
            about="From submission, the wait in the queue included.",
        ),
    ],
    "Queue and refusals": [
        graph(
            "Sentences that wait, and how many may",
            (f"lingon_queue_depth{{{MODEL}}}", f"waits {PER_MODEL}"),
            (f"lingon_queue_limit{{{MODEL}}}", f"limit {PER_MODEL}"),
        ),
        graph(
            "Source tokens that wait, and how many may",
            (f"lingon_queue_tokens{{{MODEL}}}", f"wait {PER_MODEL}"),
            (f"lingon_queue_tokens_limit{{{MODEL}}}", f"limit {PER_MODEL}"),
        ),
        graph("Wait in the queue", *quantiles("lingon_queue_duration_seconds", MODEL), unit="s"),
        graph(
            "Calls refused, by reason",
            (f"sum by (reason) ({rate('lingon_rejected_total')}) > 0", "{{reason}}"),
            unit="reqps",
            stacked=True,
        ),
        graph(
            "Share of calls refused for want of capacity or quota",
            (
                f"sum by (instance) ({rate('lingon_rejected_total', OVERLOAD)})"
                f" / sum by (instance) ({rate('lingon_requests_total')})",
                "{{instance}}",
            ),
            unit="percentunit",
        ),
        graph(
            "Under way",
            (f"sum(lingon_requests_in_flight{{{HERE}}})", "calls"),
            (f"sum(lingon_running_sentences{{{MODEL}}})", "sentences that are decoded"),
        ),
    ],
    "Engine": [
        graph(
            "Share of computed rows that live",
            (
                f"sum by (model, version) ({rate('lingon_live_rows_total', MODEL)})"
                f" / sum by (model, version) ({rate('lingon_computed_rows_total', MODEL)})",
                "{{model}}/{{version}}",
            ),
            unit="percentunit",
            most=1,
            about="1 is best; what is missing was computed for rows that no sentence had.",
        ),
        heatmap("Rows that live in a step", "lingon_batch_rows", MODEL, "short"),
        graph(
            "Tokens",
            (f"sum({rate('lingon_source_tokens_total', MODEL)})", "source"),
            (f"sum({rate('lingon_target_tokens_total', MODEL)})", "target"),
            unit="cps",
        ),
        graph("One step of the decoder", *quantiles("lingon_decoder_step_duration_seconds", MODEL), unit="s"),
        graph("One run of the encoder", *quantiles("lingon_encoder_duration_seconds", MODEL), unit="s"),
        graph(
            "Share of encoded tokens that are padding",
            (
                f"1 - sum by (model, version) ({rate('lingon_source_tokens_total', MODEL)})"
                f" / sum by (model, version) ({rate('lingon_padded_tokens_total', MODEL)})",
                "{{model}}/{{version}}",
            ),
            unit="percentunit",
            most=1,
        ),
        graph(
            "Sentences by outcome",
            (f"sum by (outcome) ({rate('lingon_sentences_total', MODEL)}) > 0", "{{outcome}}"),
            unit="cps",
            stacked=True,
        ),
        graph(
            "Translations that are cut, texts that are split",
            *(
                (
                    f"sum by (model, version) ({rate(name, MODEL)})"
                    f" / sum by (model, version) ({rate('lingon_translated_texts_total', MODEL)})",
                    f"{what} {{{{model}}}}/{{{{version}}}}",
                )
                for what, name in (("cut", "lingon_truncated_total"), ("split", "lingon_split_total"))
            ),
            unit="percentunit",
            about="Of the texts that were translated.",
        ),
        graph(
            "Past copied between rows",
            (f"sum({rate('lingon_past_copied_bytes_total', MODEL)})", "copied"),
            unit="Bps",
            about="Only beams copy, and only where a parent changed.",
        ),
    ],
    "Health": [
        graph("Ready", (f"lingon_ready{{{HERE}}}", "{{instance}}"), most=1),
        graph(
            "Engines that died or hung",
            (
                f"sum by (instance, model, cause) (increase(lingon_engine_restarts_total{{{MODEL}}}[1m]))",
                "{{cause}} {{model}} {{instance}}",
            ),
        ),
        graph(
            "Processes started again in their place",
            (f'changes(process_start_time_seconds{{job="lingon", {HERE}}}[5m])', "{{instance}}"),
        ),
        graph(
            "How late the event loop is, p99",
            (quantile(0.99, "lingon_event_loop_lag_seconds", by="le, instance"), "{{instance}}"),
            unit="s",
        ),
        graph(
            "On the CPU though there are graphs for a card",
            (f"lingon_provider_fallback{{{MODEL}}}", PER_MODEL),
            most=1,
        ),
        graph(
            "Changes of models",
            (f"sum by (outcome) (increase(lingon_model_changes_total{{{HERE}}}[$__rate_interval]))", "{{outcome}}"),
        ),
    ],
    "Memory and processor": [
        graph(
            "States and graphs",
            (f"lingon_state_bytes{{{MODEL}}}", f"states {PER_MODEL}"),
            (f"lingon_graph_bytes{{{MODEL}}}", f"graphs {PER_MODEL}"),
            unit="bytes",
        ),
        graph(
            "Resident memory",
            (f'process_resident_memory_bytes{{job="lingon", {HERE}}}', "{{instance}}"),
            unit="bytes",
        ),
        graph(
            "Cores in use",
            (rate("process_cpu_seconds_total", f'job="lingon", {HERE}'), "{{instance}}"),
        ),
    ],
    "What serves": [
        table("Models", 16, f"lingon_model_info{{{MODEL}}}"),
        table("Servers", 8, f"lingon_build_info{{{HERE}}}"),
    ],
}


def laid_out(rows: dict[str, list[Json]]) -> list[Json]:
    """All panels with their numbers and places: from left to right, 24 columns wide."""
    panels: list[Json] = []
    y = 0
    for title, members in rows.items():
        panels.append({"type": "row", "title": title, "collapsed": False, "panels": []})
        panels[-1]["gridPos"] = {"x": 0, "y": y, "w": 24, "h": 1}
        x, y = 0, y + 1
        height = 0
        for member in members:
            if x + member["gridPos"]["w"] > 24:
                x, y = 0, y + height
            height = member["gridPos"]["h"]
            panels.append({**member, "gridPos": {"x": x, "y": y, **member["gridPos"]}})
            x += member["gridPos"]["w"]
        y += height
    return [{"id": number, **member} for number, member in enumerate(panels, start=1)]


def variable(name: str, metric: str) -> Json:
    """A choice among the values of a label; all of them at first."""
    query = f"label_values({metric}, {name})"
    return {
        "name": name,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "sort": 1,
        "current": {"selected": True, "text": "All", "value": "$__all"},
    }


def dashboard() -> Json:
    """The whole of it."""
    source = {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "current": {}}
    return {
        "uid": "lingon",
        "title": "Lingon",
        "description": "Written by deploy/grafana/build_dashboard.py; how to read it: deploy/RUNBOOK.md.",
        "tags": ["lingon", "translation"],
        "schemaVersion": 39,
        "editable": False,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "timezone": "browser",
        "templating": {
            "list": [source, variable("instance", "lingon_build_info"), variable("model", "lingon_model_info")]
        },
        "annotations": {
            "list": [
                {
                    "name": "Alerts",
                    "datasource": SOURCE,
                    "enable": True,
                    "iconColor": RED,
                    "expr": 'ALERTS{alertstate="firing", alertname=~"Lingon.*"}',
                    "titleFormat": "{{alertname}}",
                    "textFormat": "{{instance}}",
                }
            ]
        },
        "panels": laid_out(ROWS),
    }


def main() -> None:
    """Write the dashboard, or compare."""
    text = json.dumps(dashboard(), indent=1, ensure_ascii=False) + "\n"
    if "--check" not in sys.argv[1:]:
        PATH.write_text(text, encoding="utf-8")
    elif not PATH.is_file() or PATH.read_text(encoding="utf-8") != text:
        sys.exit(f"lingon: error: {PATH} is not what {Path(__file__).name} writes; run it without --check")


if __name__ == "__main__":
    main()
