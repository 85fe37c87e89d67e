"""The anthropic package: messages, whole and streamed, tools and their results, counting, errors."""
import anthropic

from served import ANSWER, QUESTION, SCRIPT_MODEL, WEATHER, raises, run, serve

USER = [{"role": "user", "content": QUESTION}]
TOOLS = [{"name": "get_weather", "description": "The weather", "input_schema": WEATHER}]


def message(c):
    m = c.messages.create(model="pico", max_tokens=64, messages=USER)
    assert m.content[0].type == "text" and m.content[0].text == ANSWER
    assert m.stop_reason == "end_turn" and m.usage.input_tokens > 5 and m.usage.output_tokens > 5
    m = c.messages.create(model="pico", max_tokens=3, messages=USER, system="Be brief.")
    assert m.stop_reason == "max_tokens"


def stream(c):
    with c.messages.stream(model="pico", max_tokens=64, messages=USER) as s:
        text = "".join(s.text_stream)
        final = s.get_final_message()
    assert text == ANSWER == final.content[0].text and final.stop_reason == "end_turn"
    assert final.usage.output_tokens > 5


def events(c):
    kinds = [e.type for e in c.messages.create(model="pico", max_tokens=4, messages=USER, stream=True)]
    assert kinds[:2] == ["message_start", "content_block_start"], kinds
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"], kinds


def stop(c):
    m = c.messages.create(model="script-lfm2", max_tokens=64, messages=[{"role": "user", "content": "s01"}],
                          stop_sequences=["wor"])
    assert (m.stop_reason, m.stop_sequence, m.content[0].text) == ("stop_sequence", "wor", "Hello, ")


def tools(c):
    user = {"role": "user", "content": "s05"}
    m = c.messages.create(model="script-lfm2", max_tokens=64, messages=[user], tools=TOOLS)
    call = [b for b in m.content if b.type == "tool_use"][0]
    assert m.stop_reason == "tool_use" and call.name == "get_weather" and call.input == {"city": "São Paulo"}
    assert m.content[0].text.startswith("Let me check.")
    m = c.messages.create(model="script-lfm2", max_tokens=64, tools=TOOLS, messages=[
        user, {"role": "assistant", "content": m.content},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "12 degrees"},
                                     {"type": "text", "text": "s01"}]}])
    assert m.content[0].text == "Hello, world."
    with c.messages.stream(model="script-lfm2", max_tokens=64, messages=[user], tools=TOOLS) as s:
        final = s.get_final_message()
    assert [b for b in final.content if b.type == "tool_use"][0].input == {"city": "São Paulo"}


def thinking(c):
    user = [{"role": "user", "content": "s13"}]
    m = c.messages.create(model="script-lfm2", max_tokens=64, messages=user)
    assert [b.type for b in m.content] == ["thinking", "text"]
    with c.messages.stream(model="script-lfm2", max_tokens=64, messages=user) as s:
        final = s.get_final_message()
    assert [b.type for b in final.content] == ["thinking", "text"]
    assert final.content[0].thinking == m.content[0].thinking


def forced(c):
    for choice in ({"type": "any"}, {"type": "tool", "name": "get_weather"}):
        m = c.messages.create(model="pico", max_tokens=64, messages=USER, tools=TOOLS, tool_choice=choice)
        assert m.stop_reason == "tool_use" and m.content[-1].name == "get_weather" and m.content[-1].input
    m = c.messages.create(model="pico", max_tokens=64, messages=USER, tools=TOOLS, tool_choice={"type": "none"})
    assert [b.type for b in m.content] == ["text"]


def count(c):
    n = c.messages.count_tokens(model="pico", messages=USER).input_tokens
    m = c.messages.create(model="pico", max_tokens=1, messages=USER)
    assert n == m.usage.input_tokens + m.usage.cache_read_input_tokens


def errors(c):
    assert raises(anthropic.NotFoundError, lambda: c.messages.create(model="x", max_tokens=1, messages=USER))
    e = raises(anthropic.BadRequestError, lambda: c.messages.create(
        model="pico", max_tokens=1, messages=[{"role": "user", "content": "word " * 9000}]))
    assert e.body["type"] == "error" and e.body["error"]["type"] == "invalid_request_error"
    assert raises(anthropic.BadRequestError, lambda: c.messages.create(
        model="pico", max_tokens=1, messages=USER, tools=[{"type": "web_search_20250305", "name": "web_search"}]))


def key(url):
    ask = lambda k: anthropic.Anthropic(base_url=url, api_key=k, max_retries=0).messages.create(  # noqa: E731
        model="pico", max_tokens=1, messages=USER)
    assert ask("sk-good").type == "message"
    assert raises(anthropic.AuthenticationError, lambda: ask("sk-bad"))


with serve() as pico_url, serve("-m", SCRIPT_MODEL) as script_url, serve("--api-key", "sk-good") as key_url:
    pico = anthropic.Anthropic(base_url=pico_url, api_key="x", max_retries=0)
    script = anthropic.Anthropic(base_url=script_url, api_key="x", max_retries=0)
    run([("message", message, pico), ("stream", stream, pico), ("events", events, pico), ("stop", stop, script),
         ("tools", tools, script), ("thinking", thinking, script), ("forced calls", forced, pico), ("count_tokens", count, pico),
         ("errors", errors, pico), ("key", key, key_url)])
