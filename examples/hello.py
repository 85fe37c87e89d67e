"""The same through ctypes, without a compiler: python3 hello.py MODEL.gguf [QUESTION]

The library is the one of the loader, or the file that $TERN_LIBRARY names. Structures are as in tern.h; of the options
only the fields up to the last one that is set here are spelt out, the rest is room that tern_*_default() fills.
"""
import ctypes as c
import json
import os
import sys

lib = c.CDLL(os.environ.get("TERN_LIBRARY", "libtern.so.0"))


class Err(c.Structure):
    _fields_ = [("code", c.c_int), ("pos", c.c_int64), ("message", c.c_char * 768)]


class Str(c.Structure):
    _fields_ = [("data", c.c_void_p), ("len", c.c_size_t)]


class EngineOptions(c.Structure):
    _fields_ = [("model_path", c.c_char_p), ("rest", c.c_byte * 4096)]


class RequestOptions(c.Structure):
    _fields_ = [("prompt", Str), ("prompt_special", c.c_bool), ("prompt_ids", c.c_void_p), ("n_prompt_ids", c.c_size_t),
                ("messages_json", Str), ("tools_json", Str), ("template_json", Str), ("reuse_prefix", c.c_bool),
                ("append", c.c_bool), ("n_max", c.c_int), ("rest", c.c_byte * 4096)]


class Event(c.Structure):
    _fields_ = [("type", c.c_int), ("text", Str), ("rest", c.c_byte * 4096)]


TEXT, DONE = 1, 4  # enum tern_event_type
err = Err()


def check(status):
    if status != 0:
        sys.exit("hello: " + err.message.decode())


options = EngineOptions()
lib.tern_engine_options_default(c.byref(options))
options.model_path = sys.argv[1].encode()
engine, session, request = c.c_void_p(), c.c_void_p(), c.c_void_p()
check(lib.tern_engine_open(c.byref(engine), c.byref(options), c.byref(err)))
check(lib.tern_session_open(c.byref(session), engine, c.byref(err)))

ask = RequestOptions()
lib.tern_request_options_default(c.byref(ask))
question = sys.argv[2] if len(sys.argv) > 2 else "What is a solenogaster?"
messages = c.create_string_buffer(json.dumps([{"role": "user", "content": question}]).encode())
ask.messages_json = Str(c.addressof(messages), len(messages.value))
ask.n_max = 64
check(lib.tern_request_create(c.byref(request), session, c.byref(ask), c.byref(err)))
event = Event()
while event.type != DONE:
    check(lib.tern_request_next(request, c.byref(event), c.byref(err)))
    if event.type == TEXT:
        sys.stdout.buffer.write(c.string_at(event.text.data, event.text.len))
        sys.stdout.flush()
print(file=sys.stderr)

lib.tern_request_free(request)
lib.tern_session_close(session)
lib.tern_engine_close(engine)
