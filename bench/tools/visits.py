"""The functions of Lingon that a warm call passes in a server: how often, how many, in how many classes and files.

    python -m lingon.bench.tools.visits models/en-de
    python -m lingon.bench.tools.visits models/en-de --beam-size 4 --list

The profiler of Python counts the calls of functions in all threads of the server, from before a call of one sentence
until after its end, without comprehensions. The figures are medians, because calls differ by some visits of the
event loop.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from lingon import Client
from lingon.bench.results_file import show
from lingon.bench.worker_process import ChildProcess

SENTENCE = "Tom lives in Boston."
WARM_UP = 30  # calls before those that are counted
AFTER = 0.05  # seconds after the reply until the server has finished its work for a call
ROOT = Path(__file__).resolve().parents[2]
OURS = str(ROOT / "lingon"), *(str(ROOT / name) for name in ("bulk", "export", "gateway", "serving", "training"))
COMPREHENSIONS = "<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>"


def main(
    model: Annotated[Path, typer.Argument(help="Model that the server serves.")],
    target: Annotated[str, typer.Option(help="Language of the translations.")] = "de",
    beam_size: Annotated[int, typer.Option(min=1, help="Beam size of the calls; 1 is greedy search.")] = 1,
    calls: Annotated[int, typer.Option(min=1, help="Calls that are counted.")] = 7,
    listed: Annotated[bool, typer.Option("--list", help="Also print the functions of the last call.")] = False,
) -> None:
    """Print how many functions a warm call passes in a server of its own."""
    arguments = ["serve", str(model), "--port", "0", "--metrics-port", "0"]
    with ChildProcess([sys.executable, "-m", "lingon.bench.tools.visits", *arguments]) as server:
        ready = re.search(r" on (\S+:\d+),", server.read_line())
        if ready is None:
            sys.exit(f"visits: the server did not start: {server.exit_reason()}")
        counted: list[list[tuple[str, str, int]]] = []
        with Client(ready[1]) as client:
            options: Any = {"target": target, "beam_size": beam_size, "guard": "off"}
            for number in range(WARM_UP + calls):
                if number >= WARM_UP:
                    server.write_line("begin")
                    server.read_line()
                client.translate(SENTENCE, **options)
                if number >= WARM_UP:
                    time.sleep(AFTER)
                    server.write_line("end")
                    counted.append(json.loads(server.read_line()))
    figures = [figures_of(each) for each in counted]
    show([{name: round(statistics.median(each[name] for each in figures)) for name in figures[0]}])
    if listed:
        show([{"file": file, "function": name, "visits": count} for file, name, count in sorted(counted[-1])])


def figures_of(visits: list[tuple[str, str, int]]) -> dict[str, int]:
    """Return the figures of one call. visits: of each function, with its file and its qualified name."""
    return {
        "visits": sum(count for *_, count in visits),
        "functions": len(visits),
        "classes": len({(file, name.rpartition(".")[0]) for file, name, _ in visits if "." in name}),
        "files": len({file for file, *_ in visits}),
    }


def serve(arguments: list[str]) -> None:
    """Run the command line of Lingon, and count visits between the lines `begin` and `end` of standard input."""
    visits, is_counting = Counter[tuple[str, str]](), threading.Event()

    def count(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and is_counting.is_set():
            code = frame.f_code
            if code.co_filename.startswith(OURS) and code.co_name not in COMPREHENSIONS:
                visits[code.co_filename, code.co_qualname] += 1

    def answer() -> None:
        for line in sys.stdin:
            if line.strip() == "begin":
                visits.clear()
                is_counting.set()
                print("counting", flush=True)
            else:
                is_counting.clear()
                found = [(str(Path(file).resolve().relative_to(ROOT)), name, n) for (file, name), n in visits.items()]
                print(json.dumps(found), flush=True)

    from lingon.cli.main import main as command_line

    threading.Thread(target=answer, daemon=True).start()
    threading.setprofile(count)
    sys.setprofile(count)
    sys.argv = ["lingon", *arguments]
    command_line()


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(sys.argv[1:])
    else:
        typer.run(main)
