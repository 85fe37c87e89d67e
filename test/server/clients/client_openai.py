"""The openai package: chat completions, completions, responses, models, whole and streamed, with tools and errors."""
import asyncio
import enum
import json

import openai
import pydantic

from served import ANSWER, QUESTION, SCRIPT_MODEL, WEATHER, raises, run, serve

USER = [{"role": "user", "content": QUESTION}]
TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "The weather", "parameters": WEATHER}}]
FLAT_TOOLS = [{"type": "function", "name": "get_weather", "description": "The weather", "parameters": WEATHER,
               "strict": False}]


def models(c):
    assert [m.id for m in c.models.list()] == ["pico"]
    assert c.models.retrieve("pico").object == "model"


def chat(c):
    r = c.chat.completions.create(model="pico", messages=USER)
    assert r.choices[0].message.content == ANSWER and r.choices[0].finish_reason == "stop"
    assert r.usage.total_tokens == r.usage.prompt_tokens + r.usage.completion_tokens > 20
    assert r.usage.prompt_tokens_details.cached_tokens >= 0


def chat_stream(c):
    text, usage, n = "", None, 0
    with c.chat.completions.create(model="pico", messages=USER, stream=True,
                                   stream_options={"include_usage": True}) as stream:
        for chunk in stream:
            n += 1
            if chunk.choices:
                text += chunk.choices[0].delta.content or ""
            usage = chunk.usage or usage
    assert text == ANSWER and n > 5 and usage.completion_tokens > 5


def choices(c):
    r = c.chat.completions.create(model="pico", messages=USER, n=3, temperature=0.8, seed=7, max_tokens=8,
                                  logprobs=True, top_logprobs=2)
    assert [x.index for x in r.choices] == [0, 1, 2]
    again = c.chat.completions.create(model="pico", messages=USER, n=3, temperature=0.8, seed=7, max_tokens=8)
    assert [x.message.content for x in r.choices] == [x.message.content for x in again.choices]
    first = r.choices[0].logprobs.content[0]
    assert first.logprob <= 0 and len(first.top_logprobs) == 2 and bytes(first.bytes).decode() == first.token


def tools(c):
    r = c.chat.completions.create(model="script-lfm2", messages=[{"role": "user", "content": "s04"}], tools=TOOLS)
    call = r.choices[0].message.tool_calls[0]
    assert r.choices[0].finish_reason == "tool_calls" and call.function.name == "get_weather"
    assert json.loads(call.function.arguments) == {"city": "Paris", "unit": "celsius"}
    # The call and its result go back, as the package gives them.
    r = c.chat.completions.create(model="script-lfm2", tools=TOOLS, messages=[
        {"role": "user", "content": "s04"}, r.choices[0].message,
        {"role": "tool", "tool_call_id": call.id, "content": "12 degrees"}, {"role": "user", "content": "s01"}])
    assert r.choices[0].message.content == "Hello, world."


def tools_stream(c):
    with c.chat.completions.stream(model="script-lfm2", messages=[{"role": "user", "content": "s04"}],
                                   tools=TOOLS) as stream:
        done = [e for e in stream if e.type == "tool_calls.function.arguments.done"]
        final = stream.get_final_completion()
    assert len(done) == 1 and done[0].name == "get_weather"
    assert json.loads(final.choices[0].message.tool_calls[0].function.arguments)["city"] == "Paris"


def reasoning(c):
    r = c.chat.completions.create(model="script-lfm2", messages=[{"role": "user", "content": "s13"}])
    assert r.choices[0].message.content.strip() == "Four."
    assert r.choices[0].message.reasoning_content.strip() == "Two and two."


def completions(c):
    r = c.completions.create(model="pico", prompt=["Once upon a time", "The moon"], max_tokens=5, logprobs=1)
    assert len(r.choices) == 2 and r.choices[0].text and len(r.choices[0].logprobs.tokens) == 5
    text = "".join(x.choices[0].text for x in
                   c.completions.create(model="pico", prompt="Once upon a time", max_tokens=5, stream=True))
    assert text == r.choices[0].text


def responses(c):
    r = c.responses.create(model="pico", input=QUESTION, metadata={"a": "b"})
    assert r.output_text == ANSWER and r.status == "completed" and r.metadata == {"a": "b"}
    assert r.usage.input_tokens_details.cached_tokens >= 0 and r.usage.output_tokens_details.reasoning_tokens == 0
    r = c.responses.create(model="pico", instructions="Be brief.", input=[{"role": "user", "content": QUESTION}],
                           max_output_tokens=3)
    assert r.status == "incomplete" and r.incomplete_details.reason == "max_output_tokens"


def responses_stream(c):
    kinds, text = [], ""
    with c.responses.stream(model="pico", input=QUESTION) as stream:
        for event in stream:
            kinds.append(event.type)
            text += event.delta if event.type == "response.output_text.delta" else ""
        final = stream.get_final_response()
    assert text == final.output_text == ANSWER
    assert kinds[0] == "response.created" and kinds[-1] == "response.completed"


def responses_tools(c):
    r = c.responses.create(model="script-lfm2", input="s04", tools=FLAT_TOOLS)
    call = [o for o in r.output if o.type == "function_call"][0]
    assert json.loads(call.arguments)["city"] == "Paris"
    r = c.responses.create(model="script-lfm2", tools=FLAT_TOOLS, input=[
        {"role": "user", "content": "s04"}, *r.output,
        {"type": "function_call_output", "call_id": call.call_id, "output": "12 degrees"},
        {"role": "user", "content": "s01"}])
    assert r.output_text == "Hello, world."
    with c.responses.stream(model="script-lfm2", input="s04", tools=FLAT_TOOLS) as stream:
        done = [e for e in stream if e.type == "response.function_call_arguments.done"]
    assert json.loads(done[0].arguments)["unit"] == "celsius"


class City(enum.Enum):
    PARIS = "Paris"
    OSLO = "Oslo"


class Weather(pydantic.BaseModel):
    city: City
    warm: bool


def structured(c):
    """Whatever the model would rather say, what comes is of the asked form."""
    r = c.chat.completions.parse(model="pico", messages=USER, response_format=Weather, max_tokens=60)
    assert isinstance(r.choices[0].message.parsed.warm, bool)
    r = c.responses.parse(model="pico", input=QUESTION, text_format=Weather, max_output_tokens=60)
    assert r.output_parsed.city in City
    e = raises(openai.BadRequestError, lambda: c.chat.completions.create(
        model="pico", messages=USER, response_format={"type": "json_schema", "json_schema": {
            "name": "x", "schema": {"type": "string", "contentEncoding": "base64", "if": {"minLength": 1}}}}))
    assert "if" in e.message


def forced(c):
    for choice in ("required", {"type": "function", "function": {"name": "get_weather"}}):
        r = c.chat.completions.create(model="pico", messages=USER, tools=TOOLS, tool_choice=choice, max_tokens=60)
        assert r.choices[0].message.tool_calls[0].function.name == "get_weather"
    r = c.responses.create(model="pico", input=QUESTION, tools=FLAT_TOOLS, max_output_tokens=60,
                           tool_choice={"type": "function", "name": "get_weather"})
    assert [o.type for o in r.output][-1] == "function_call"


def errors(c, url):
    e = raises(openai.NotFoundError, lambda: c.chat.completions.create(model="gpt-9", messages=USER))
    assert e.code == "model_not_found" and e.param == "model"
    e = raises(openai.BadRequestError, lambda: c.chat.completions.create(model="pico", messages=USER, temperature=9))
    assert e.param == "temperature"
    e = raises(openai.BadRequestError, lambda: c.chat.completions.create(
        model="pico", messages=[{"role": "user", "content": "word " * 9000}]))
    assert e.code == "context_length_exceeded"
    assert raises(openai.BadRequestError, lambda: c.responses.create(model="pico", input="x", previous_response_id="r"))
    assert raises(openai.BadRequestError, lambda: c.embeddings.create(model="pico", input="x"))


def key(url):
    good = openai.OpenAI(base_url=url + "/v1", api_key="sk-good", max_retries=0)
    assert good.models.list().data
    bad = openai.OpenAI(base_url=url + "/v1", api_key="sk-bad", max_retries=0)
    assert raises(openai.AuthenticationError, bad.models.list)


def together(url):
    async def all_of():
        c = openai.AsyncOpenAI(base_url=url + "/v1", api_key="x")
        ask = lambda: c.chat.completions.create(model="pico", messages=USER)  # noqa: E731
        return await asyncio.gather(*[ask() for _ in range(12)])
    assert {r.choices[0].message.content for r in asyncio.run(all_of())} == {ANSWER}


def early_end(c):
    for _ in range(5):
        stream = c.chat.completions.create(model="pico", messages=USER, stream=True)
        next(iter(stream))
        stream.close()
    chat(c)


with serve() as pico_url, serve("-m", SCRIPT_MODEL) as script_url, serve("--api-key", "sk-good") as key_url:
    pico = openai.OpenAI(base_url=pico_url + "/v1", api_key="x", max_retries=0)
    script = openai.OpenAI(base_url=script_url + "/v1", api_key="x", max_retries=0)
    run([("models", models, pico), ("chat", chat, pico), ("chat, streamed", chat_stream, pico),
         ("choices", choices, pico), ("tools", tools, script), ("tools, streamed", tools_stream, script),
         ("reasoning", reasoning, script), ("completions", completions, pico), ("responses", responses, pico),
         ("responses, streamed", responses_stream, pico), ("responses, tools", responses_tools, script),
         ("structured output", structured, pico), ("forced calls", forced, pico), ("errors", errors, pico, pico_url), ("key", key, key_url), ("many at once", together, pico_url),
         ("streams that are left", early_end, pico)])
