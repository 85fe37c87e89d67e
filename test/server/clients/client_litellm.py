"""LiteLLM over each of the formats that it can speak to the server with."""
import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # asks nobody else
import litellm  # noqa: E402

from served import ANSWER, QUESTION, SCRIPT_MODEL, WEATHER, raises, run, serve  # noqa: E402

litellm.telemetry = False
litellm.suppress_debug_info = True
USER = [{"role": "user", "content": QUESTION}]
TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "The weather", "parameters": WEATHER}}]


def ask(model, url, **more):
    r = litellm.completion(model=model, api_base=url, api_key="x", messages=USER, max_tokens=64, **more)
    assert r.choices[0].message.content == ANSWER, r
    assert r.usage.completion_tokens > 5


def stream(model, url):
    parts = litellm.completion(model=model, api_base=url, api_key="x", messages=USER, max_tokens=64, stream=True)
    assert "".join(p.choices[0].delta.content or "" for p in parts) == ANSWER


def tools(model, url):
    r = litellm.completion(model=model, api_base=url, api_key="x", messages=[{"role": "user", "content": "s04"}],
                           tools=TOOLS, max_tokens=64)
    call = r.choices[0].message.tool_calls[0].function
    assert call.name == "get_weather" and "Paris" in call.arguments


def errors(url):
    assert raises(litellm.NotFoundError, lambda: litellm.completion(
        model="openai/gpt-9", api_base=url + "/v1", api_key="x", messages=USER, num_retries=0))
    assert raises(litellm.BadRequestError, lambda: litellm.completion(
        model="openai/pico", api_base=url + "/v1", api_key="x", messages=[{"role": "user", "content": "w " * 9000}],
        num_retries=0))


with serve() as pico, serve("-m", SCRIPT_MODEL) as script:
    run([("openai", ask, "openai/pico", pico + "/v1"), ("openai, streamed", stream, "openai/pico", pico + "/v1"),
         ("anthropic", ask, "anthropic/pico", pico), ("anthropic, streamed", stream, "anthropic/pico", pico),
         ("ollama", ask, "ollama_chat/pico", pico), ("ollama, streamed", stream, "ollama_chat/pico", pico),
         ("openai, tools", tools, "openai/script-lfm2", script + "/v1"),
         ("anthropic, tools", tools, "anthropic/script-lfm2", script),
         ("errors", errors, pico)])
