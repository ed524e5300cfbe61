"""HTTP APIs in front of a Lingon server: our own, and those of DeepL, LibreTranslate and Google. Imports `lingon`.

The gateway is a client of the gRPC service: quotas, fairness, warnings and metrics of the server hold for HTTP too.
"""
