"""HTTP APIs in front of a Lingon server: our own, and those of DeepL, LibreTranslate and Google. It imports `lingon`.

It is a client of the gRPC service: quotas, fairness, warnings and metrics of the server hold for HTTP too.
"""
