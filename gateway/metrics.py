"""The Prometheus metrics of the gateway. Label values come from closed sets."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)


class GatewayMetrics:
    """The metrics of requests by API, with their status and latency."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._known: dict[tuple[str, int], tuple[Counter, Histogram]] = {}  # counter and histogram by API and status
        self.requests = Counter(
            "lingon_http_requests", "HTTP requests that ended.", ("api", "status"), registry=registry
        )
        self.seconds = Histogram(
            "lingon_http_request_duration_seconds",
            "Time from the body of an HTTP request to its reply.",
            ("api",),
            buckets=SECONDS,
            registry=registry,
        )
        self.in_flight = Gauge("lingon_http_requests_in_flight", "HTTP requests that are open.", registry=registry)
        self.connections = Gauge("lingon_http_connections", "Connections to the HTTP port.", registry=registry)

    def ended(self, api: str, status: int, seconds: float) -> None:
        """Count a request with its time."""
        if (known := self._known.get((api, status))) is None:
            known = self._known[api, status] = self.requests.labels(api, str(status)), self.seconds.labels(api)
        known[0].inc()
        known[1].observe(seconds)

    def counted(self, api: str, status: int) -> None:
        """Count a request whose time says nothing, because its client decides how long it is open."""
        self.requests.labels(api, str(status)).inc()
