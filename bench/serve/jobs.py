"""What the load generator is told to do; each is one JSON line on its way to the generator's process."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from lingon.translation.v1 import translation_pb2 as pb


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """Who is asked, and for what.

    address: HOST:PORT
    timeout: seconds that a request has
    """

    address: str
    beam_size: int = 1
    timeout: float = 5.0

    def request(self, text: str) -> pb.TranslateRequest:
        """One sentence. No length penalty: it would change what the search has to do, not how fast it is done."""
        options = pb.DecodingOptions(beam_size=self.beam_size, num_hypotheses=1, length_penalty=0.0)
        return pb.TranslateRequest(texts=[text], options=options)


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """Requests at the moments of `lingon.bench.serve.load`, whether or not others have been answered.

    offered: requests a second
    warm_up: seconds before those that count
    """

    target: Target
    offered: float
    seconds: float
    warm_up: float
    seed: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Closed:
    """Clients that send the next request when one is answered.

    requests: how many in all, at most: the texts in their order, again from the first where they end
    seconds: after which no more is sent
    """

    target: Target
    clients: int
    requests: int
    seconds: float


Job = Load | Closed


def to_json(job: Job) -> dict[str, Any]:
    """The job as a message."""
    return {"kind": type(job).__name__, **asdict(job)}


def from_json(message: dict[str, Any]) -> Job:
    """The job of a message."""
    kinds: dict[str, type[Job]] = {"Load": Load, "Closed": Closed}
    values = {name: value for name, value in message.items() if name not in ("kind", "target")}
    return kinds[message["kind"]](target=Target(**message["target"]), **values)
