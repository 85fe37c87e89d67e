"""The ollama package: chat, generate, lists, show, tools, errors."""
import json

import ollama

from served import ANSWER, QUESTION, SCRIPT_MODEL, WEATHER, raises, run, serve

USER = [{"role": "user", "content": QUESTION}]
TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "The weather", "parameters": WEATHER}}]


def lists(c):
    assert [m.model for m in c.list().models] == ["pico:latest"]
    assert c.ps().models[0].model == "pico:latest"
    shown = c.show("pico")
    assert shown.details.family == "lfm2" and "completion" in shown.capabilities
    assert shown.modelinfo["general.architecture"] == "lfm2"


def chat(c):
    r = c.chat(model="pico", messages=USER)
    assert r.message.content == ANSWER and r.done and r.done_reason == "stop"
    assert r.prompt_eval_count > 5 and r.eval_count > 5 and r.total_duration > 1000
    parts = list(c.chat(model="pico:latest", messages=USER, stream=True))
    assert "".join(p.message.content for p in parts) == ANSWER
    assert [p.done for p in parts] == [False] * (len(parts) - 1) + [True] and len(parts) > 5


def options(c):
    o = {"num_predict": 6, "temperature": 0.9, "seed": 3, "top_k": 20, "num_ctx": 4096}
    a, b = (c.chat(model="pico", messages=USER, options=o) for _ in range(2))
    assert a.message.content == b.message.content and a.eval_count == 6 and a.done_reason == "length"


def generate(c):
    r = c.generate(model="pico", prompt=QUESTION, system="")
    assert r.response == ANSWER
    text = "".join(p.response for p in c.generate(model="pico", prompt=QUESTION, stream=True))
    assert text == ANSWER
    r = c.generate(model="pico", prompt="Once upon", raw=True, options={"num_predict": 4})
    assert r.eval_count == 4


def tools(c):
    user = {"role": "user", "content": "s04"}
    r = c.chat(model="script-lfm2", messages=[user], tools=TOOLS)
    call = r.message.tool_calls[0].function
    assert call.name == "get_weather" and call.arguments == {"city": "Paris", "unit": "celsius"}
    again = [p.message.tool_calls for p in c.chat(model="script-lfm2", messages=[user], tools=TOOLS, stream=True)]
    assert [t[0].function.name for t in again if t] == ["get_weather"]
    r = c.chat(model="script-lfm2", tools=TOOLS, messages=[
        user, r.message, {"role": "tool", "content": "12 degrees", "tool_name": "get_weather"},
        {"role": "user", "content": "s01"}])
    assert r.message.content == "Hello, world."


def thinking(c):
    r = c.chat(model="script-lfm2", messages=[{"role": "user", "content": "s13"}])
    assert r.message.thinking.strip() == "Two and two." and r.message.content.strip() == "Four."


def structured(c):
    form = {"type": "object", "properties": {"city": {"enum": ["Paris", "Oslo"]}, "warm": {"type": "boolean"}},
            "required": ["city", "warm"], "additionalProperties": False}
    r = json.loads(c.chat(model="pico", messages=USER, format=form, options={"num_predict": 60}).message.content)
    assert r["city"] in ("Paris", "Oslo") and isinstance(r["warm"], bool)
    r = c.generate(model="pico", prompt=QUESTION, format=form, options={"num_predict": 60})
    assert json.loads(r.response).keys() == {"city", "warm"}


def errors(c):
    e = raises(ollama.ResponseError, lambda: c.chat(model="none", messages=USER))
    assert e.status_code == 404 and "none" in e.error
    e = raises(ollama.ResponseError, lambda: c.chat(model="pico", messages=USER, options={"temperature": 9.0}))
    assert e.status_code == 400 and "temperature" in e.error
    assert raises(ollama.ResponseError, lambda: c.embed(model="pico", input="x")).status_code == 400


with serve() as pico_url, serve("-m", SCRIPT_MODEL) as script_url:
    pico, script = ollama.Client(host=pico_url), ollama.Client(host=script_url)
    run([("lists", lists, pico), ("chat", chat, pico), ("options", options, pico), ("generate", generate, pico),
         ("tools", tools, script), ("thinking", thinking, script), ("structured output", structured, pico), ("errors", errors, pico)])
