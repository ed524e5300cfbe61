"""HTTP APIs in front of a Lingon server: ours, those of translators, and OpenAI's chat. Imports `lingon`.

The gateway is a client of the gRPC service: quotas, fairness, warnings and metrics of the server hold for HTTP too.
"""
