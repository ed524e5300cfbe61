"""The limits of an engine. Light to import: the settings of a server take their defaults from here."""

from __future__ import annotations

from dataclasses import dataclass

from lingon.errors import SettingsError


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineLimits:
    """How much work an engine queues, and how much it decodes together."""

    max_queue_texts: int = 1024  # sentences
    max_queue_tokens: int = 65_536  # of sources, and of targets to score
    max_rows: int = 64  # sentences times beam size, over all workers
    spread: int = 16  # sentences; from this number on, every worker gets a share, see `lanes.fair_share`
    max_batch_tokens: int = 1024  # tokens of one encoder run, padding included; larger runs leave the CPU's caches

    def __post_init__(self) -> None:
        for name in ("max_queue_texts", "max_queue_tokens", "max_rows", "spread", "max_batch_tokens"):
            if getattr(self, name) < 1:
                raise SettingsError(f"{name} must be at least 1, got {getattr(self, name)}")
