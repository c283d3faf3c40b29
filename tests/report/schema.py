# SPDX-License-Identifier: Apache-2.0
"""Documents against the JSON Schemas of report/, with what they use of the standard; another keyword is an error.

    schema.validate(document, "plan.schema.json")

A part may have the schema of another file or of a part of it ("$ref": "plan.schema.json#/properties/training").
"""

import json
import os
import re

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "report")
TYPES = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
}
KNOWN = {"$schema", "$defs", "$ref", "title", "description", "type", "const", "enum", "pattern", "minimum", "required",
         "properties", "additionalProperties", "items", "prefixItems", "minItems", "maxItems"}  # fmt: skip
files = {}


class Mismatch(AssertionError):
    """Where a document is not as its schema says."""


def load(name):
    if name not in files:
        with open(os.path.join(FOLDER, name), encoding="utf-8") as file:
            files[name] = json.load(file)
    return files[name]


def fail(path, what):
    raise Mismatch(f"{path or 'the document'}: {what}")


def resolve(reference, root):
    name, _, path = reference.partition("#")
    root = load(name) if name else root
    found = root
    for key in path.split("/")[1:]:
        found = found[key]
    return found, root


def check_object(value, schema, root, path):
    for key in schema.get("required", []):
        if key not in value:
            fail(path, f"lacks {key}")
    properties, more = schema.get("properties", {}), schema.get("additionalProperties", True)
    for key, part in value.items():
        if key in properties:
            check(part, properties[key], root, f"{path}.{key}")
        elif more is False:
            fail(path, f"has {key}, of which the schema says nothing")
        elif more is not True:
            check(part, more, root, f"{path}.{key}")


def check_array(value, schema, root, path):
    if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
        fail(path, f"has {len(value)} items")
    first = schema.get("prefixItems", [])
    for i, part in enumerate(value):
        if i < len(first):
            check(part, first[i], root, f"{path}[{i}]")
        elif "items" in schema:
            check(part, schema["items"], root, f"{path}[{i}]")


def check(value, schema, root, path):
    if not set(schema) <= KNOWN:
        fail(path, f"the schema has {sorted(set(schema) - KNOWN)}, which this validator does not know")
    if "$ref" in schema:
        check(value, *resolve(schema["$ref"], root), path)
    types = schema.get("type", [])
    types = types if isinstance(types, list) else [types]
    if types and not any(TYPES[name](value) for name in types):
        fail(path, f"{value!r:.60} is none of {types}")
    if "const" in schema and value != schema["const"]:
        fail(path, f"{value!r:.60} is not {schema['const']!r}")
    if "enum" in schema and value not in schema["enum"]:
        fail(path, f"{value!r:.60} is none of {schema['enum']}")
    if "pattern" in schema and (not isinstance(value, str) or not re.search(schema["pattern"], value)):
        fail(path, f"{value!r:.60} does not match {schema['pattern']}")
    if "minimum" in schema and TYPES["number"](value) and value < schema["minimum"]:
        fail(path, f"{value} is below {schema['minimum']}")
    if isinstance(value, dict):
        check_object(value, schema, root, path)
    if isinstance(value, list):
        check_array(value, schema, root, path)


def validate(document, name):
    """Raises Mismatch with the place in the document."""
    root = load(name)
    check(document, root, root, "")
