"""What the client scripts share: a running `tern serve`, and counting."""
import contextlib
import os
import subprocess
import sys
import time
import traceback
import urllib.error
import urllib.request

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../../.."))
SCRIPT_MODEL = os.path.join(ROOT, "test/data/gguf/script-lfm2.gguf")  # answers "s01" … as test/data/script says
QUESTION = "Multiply 27 by 7."
ANSWER = "27 * 7 = 189.\nThe answer is 189."
WEATHER = {"type": "object", "properties": {"city": {"type": "string"}, "unit": {"type": "string"}},
           "required": ["city"]}

for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
    os.environ.pop(name, None)


@contextlib.contextmanager
def serve(*args):
    """The server's address; without a model it serves pico."""
    server = subprocess.Popen(sys.argv[1].split() + ["serve", "--port", "0", "--log", "none", *args],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    url = server.stdout.readline().strip()
    try:
        for _ in range(300):  # until the model is loaded
            with contextlib.suppress(urllib.error.HTTPError):
                urllib.request.urlopen(url + "/health", timeout=10)
                break
            time.sleep(0.1)
        yield url
    finally:
        server.terminate()
        server.communicate()


def raises(kind, call):
    """The exception of that kind which call() raises; None when it raises none."""
    try:
        call()
    except kind as e:
        return e
    return None


def run(tests):
    """Calls each (name, function, argument …); ends the program."""
    failed = 0
    for name, function, *args in tests:
        try:
            function(*args)
        except Exception:
            failed += 1
            print("FAIL  %s\n%s" % (name, traceback.format_exc(limit=-3)))
    print("%d passed, %d failed" % (len(tests) - failed, failed))
    sys.exit(failed > 0)
