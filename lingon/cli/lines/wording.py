"""Messages of the service in the words of a command line."""

from __future__ import annotations

import re


def reworded(message: str, *, translating: bool) -> str:
    """A message of the service in terms of lines and flags instead of fields of a request."""
    remedy = "shorten it or leave out --no-split-long" if translating else "shorten it"
    message = message.replace("shorten it or set options.long_text to LONG_TEXT_POLICY_SPLIT", remedy)
    message = message.replace(
        "send it as metadata, authorization: Bearer KEY", "give --api-key-file or set LINGON_API_KEY"
    )
    message = re.sub(r"\btarget_prefixes\[\d+\]", "--target-prefix", message)
    message = re.sub(r"\boptions\.(?:sampling\.)?(\w+)", lambda found: f"--{found[1].replace('_', '-')}", message)
    message = re.sub(r"\b(source|target)_language_code\b", r"--\1-language", message)
    message = message.removesuffix("; see ListModels")  # the message has the languages itself
    message = re.sub(r"\battention\.(layer|head)s\b", r"--\1", message)
    return re.sub(r"^(texts|pairs)\[\d+\][. ]", "", message)
