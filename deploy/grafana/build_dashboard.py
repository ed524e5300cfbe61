"""Writes dashboards/lingon.json. The panels and their queries are in rows.py, their JSON format in panels.py.

python deploy/grafana/build_dashboard.py [--check]: --check changes nothing and fails if the file is out of date.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from panels import RED, SOURCE, Json
from rows import ROWS

PATH = Path(__file__).parent / "dashboards" / "lingon.json"


def laid_out(rows: dict[str, list[Json]]) -> list[Json]:
    """All panels with ids and positions: from left to right, 24 columns wide."""
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
    """A variable that selects values of a label; all by default."""
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
    """The complete dashboard."""
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
    """Write the file, or compare it."""
    text = json.dumps(dashboard(), indent=1, ensure_ascii=False) + "\n"
    if "--check" not in sys.argv[1:]:
        PATH.write_text(text, encoding="utf-8")
    elif not PATH.is_file() or PATH.read_text(encoding="utf-8") != text:
        sys.exit(f"lingon: error: {PATH} is not what {Path(__file__).name} writes; run it without --check")


if __name__ == "__main__":
    main()
