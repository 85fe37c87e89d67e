"""Sampled answers under JSON schemas, held against the schemas by the jsonschema package."""
import json

import jsonschema
import openai

from served import run, serve

NAME = {"type": "string", "minLength": 1, "maxLength": 12}
NODE = {"type": "object", "properties": {"value": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/node"},
        {"type": "null"}]}}, "required": ["value", "next"], "additionalProperties": False}
SCHEMAS = {
    "object": {"type": "object", "properties": {"name": NAME, "age": {"type": "integer", "minimum": 0, "maximum": 130}},
               "required": ["name", "age"], "additionalProperties": False},
    "optional": {"type": "object", "properties": {"a": {"type": "boolean"}, "b": {"type": "null"}, "c": NAME},
                 "required": ["b"], "additionalProperties": False},
    "enum": {"enum": ["red", "green", 3, None, True]},
    "const": {"type": "object", "properties": {"kind": {"const": "bird"}}, "required": ["kind"],
              "additionalProperties": False},
    "array": {"type": "array", "items": {"type": "integer", "minimum": -9, "maximum": 9}, "minItems": 2, "maxItems": 4},
    "tuple": {"type": "array", "prefixItems": [{"type": "boolean"}, NAME], "items": False, "minItems": 2},
    "anyOf": {"anyOf": [{"type": "integer", "minimum": 10, "maximum": 99}, {"type": "boolean"}]},
    "recursive": {"$ref": "#/$defs/node", "$defs": {"node": NODE}},
    "pattern": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3}$"},
    "date": {"type": "string", "format": "date"},
    "bounds": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
    "allOf": {"allOf": [{"type": "object", "properties": {"a": {"type": "integer", "maximum": 5}}, "required": ["a"]},
                        {"properties": {"b": NAME}, "required": ["b"]}]},
}
SAMPLES = 4


def sample(c, schema, name):
    """Samples at two temperatures; whatever ended by itself is valid, and some of it does end."""
    n = 0
    for temperature in (0.7, 1.3):
        r = c.chat.completions.create(
            model="pico", messages=[{"role": "user", "content": "Give me JSON: " + name}], n=SAMPLES, seed=5,
            temperature=temperature, max_tokens=80,
            response_format={"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": schema}})
        for choice in r.choices:
            if choice.finish_reason != "stop":
                continue
            n += 1
            jsonschema.validate(json.loads(choice.message.content), schema, jsonschema.Draft202012Validator,
                                format_checker=jsonschema.FormatChecker())
    assert n > 0, "no answer came to its end"


with serve("--streams", "8") as url:
    client = openai.OpenAI(base_url=url + "/v1", api_key="x", max_retries=0)
    run([(name, sample, client, schema, name) for name, schema in SCHEMAS.items()])
