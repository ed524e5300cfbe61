"""The description of our HTTP API, /openapi.json, as tests use it."""

from __future__ import annotations

from typing import Any

from jsonschema_rs import Draft202012Validator


def strict(schema: Any) -> Any:
    """Return a description in which an object has no properties but those that are described."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: strict(each) for name, each in schema.items()}
    closed = found.get("type") == "object" and "properties" in found
    return {**found, "additionalProperties": False} if closed else found


def validator(description: Any, reference: Any) -> Draft202012Validator:
    """Return a validator of a schema, which allows no property that is not described.

    description: of an API; reference: {"$ref": "#/components/schemas/NAME"}
    """
    return Draft202012Validator({**reference, "components": strict(description["components"])})
