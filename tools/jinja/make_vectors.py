#!/usr/bin/env python3
"""Writes test/data/template/snippets.json and chat.json: what Jinja2, set up as transformers sets it up, makes of our
template snippets and of the chat templates in test/data/template/chat over a set of conversations.

Needs jinja2 (3.1). Run from the project's root; the C test compares byte for byte.
"""
import copy
import datetime
import json
import pathlib

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

import snippets

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "test" / "data" / "template"


class Generation(Extension):
    """{% generation %}…{% endgeneration %} renders its body, in a scope of its own."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    @staticmethod
    def _body(caller):
        return caller()


class Refused(Exception):
    pass


def raise_exception(message):
    raise Refused(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda f: datetime.datetime.now().strftime(f)
    return env


def render(env, source, variables):
    """{"o": text}, {"r": text of raise_exception} or {"e": kind}."""
    try:
        return {"o": env.from_string(source).render(**copy.deepcopy(variables))}
    except Refused as e:
        return {"r": str(e)}
    except jinja2.TemplateSyntaxError:
        return {"e": "syntax"}
    except Exception as e:  # whatever Python raises: the test asks only that there is an error
        return {"e": type(e).__name__}


def dump(path, value):
    rows = ",\n".join(json.dumps(v, ensure_ascii=False, separators=(",", ":")) for v in value)
    path.write_text("[\n" + rows + "\n]\n", encoding="utf-8")
    print(path.relative_to(ROOT), path.stat().st_size, "bytes,", len(value), "rows")


def main():
    env = environment()
    rows = [{"vars": snippets.VARS}]
    for source in snippets.SNIPPETS:
        row = {"t": source}
        row.update(render(env, source, snippets.VARS))
        if " at 0x" in row.get("o", ""):  # Python objects, which are no part of the language
            print("left out:", source)
            continue
        rows.append(row)
    rows += [{"t": source, "e": "int64"} for source in snippets.ERRORS]
    dump(DATA / "snippets.json", rows)

    rows = []
    templates = sorted((DATA / "chat").glob("*.jinja")) + [ROOT / "models" / "pico-chat_template.jinja"]
    for i, conversation in enumerate(snippets.CONVERSATIONS):
        out = {}
        for path in templates:
            variables = {"tools": None, "bos_token": "<|startoftext|>", "eos_token": "<|im_end|>",
                         "add_generation_prompt": i % 3 != 0}
            variables.update(conversation)
            out[path.name] = render(env, path.read_text(encoding="utf-8"), variables)
        rows.append({"in": conversation, "add_generation_prompt": i % 3 != 0, "out": out})
    dump(DATA / "chat.json", rows)


main()
