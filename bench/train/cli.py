"""The command `lingon bench train`; it imports heavy modules only when it runs."""

from __future__ import annotations

from pathlib import Path

from lingon.bench.options import train as options


def train(
    config: options.Config = Path("configs/en-de.toml"),
    tokenizer: options.Tokenizer = Path("models/en-de"),
    data: options.Data = None,
    rounds: options.Rounds = 7,
    updates: options.Updates = 20,
    threads: options.Threads = None,
    device: options.Device = "auto",
    preset: options.Preset = None,
    batch_tokens: options.BatchTokens = None,
    results: options.Results = Path("bench/results"),
) -> None:
    """Measure target tokens a second of Lingon's training loop and of a plain loop on torch.nn.Transformer.

    The share of peak is that of the rate at which the device multiplies large matrices, measured in the same run.
    """
    import tempfile

    from rich.console import Console

    from lingon.bench.results_file import save
    from lingon.bench.roofline.device_peaks import measure_device_peaks, peaks_of
    from lingon.bench.train.data import on_device, settings
    from lingon.bench.train.run import Rounds, loop_settings, measure, table
    from lingon.machine import usable_cores
    from lingon.training.device import choose_device, multiplies_bf16

    console, chosen = Console(), choose_device(device).type
    loaded = on_device(settings(config, tokenizer, data), chosen, preset, batch_tokens)
    peaks = measure_device_peaks(chosen, rounds)
    loops = loop_settings(loaded, multiplies_bf16(Path("/proc/cpuinfo").read_text(encoding="utf-8")))
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(
            loaded,
            loops,
            Rounds(rounds=rounds, updates=updates),
            threads or usable_cores(),
            Path(folder),
            peaks_of(peaks),
            lambda line: console.print(line, style="dim", highlight=False),
        )
    console.print(table(rows))
    print(f"written: {save('train', rows, results, peaks=peaks)}")
