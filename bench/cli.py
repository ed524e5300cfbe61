"""The commands of `lingon bench`; they import heavy modules only when they run."""

from __future__ import annotations

import typer

from lingon.bench.attention.cli import attention
from lingon.bench.attention_cost.cli import attention_cost
from lingon.bench.decode.cli import decode
from lingon.bench.gpu.cli import gpu
from lingon.bench.multi30k.cli import multi30k
from lingon.bench.serve.cli import serve
from lingon.bench.train.cli import train

bench = typer.Typer(help="Measure decoding, serving, training and attention, and compare with other software.")
bench.command("attention")(attention)
bench.command("attention-cost")(attention_cost)
bench.command("decode")(decode)
bench.command("gpu")(gpu)
bench.command("multi30k")(multi30k)
bench.command("serve")(serve)
bench.command("train")(train)
