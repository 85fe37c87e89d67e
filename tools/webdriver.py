"""A browser through its WebDriver, with nothing but Python's own modules."""
import base64
import json
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
KEYS = {"enter": "\ue007", "escape": "\ue00c", "up": "\ue013", "alt": "\ue00a", "left": "\ue012", "right": "\ue014",
        "control": "\ue009", "shift": "\ue008"}


def find_browser():
    """(driver, browser), or None when one is missing."""
    driver = shutil.which("chromedriver")
    browser = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chromium-browser")
    return (driver, browser) if driver and browser else None


class Browser:
    def __init__(self, width=1280, height=860, dark=False, more=()):
        driver, browser = find_browser()
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.home = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.driver = subprocess.Popen([driver, "--port=%d" % self.port], stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL)
        args = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                "--window-size=%d,%d" % (width, height), "--user-data-dir=" + self.home.name, *more]
        options = {"binary": browser, "args": args}
        if width < 600:
            options["mobileEmulation"] = {"deviceMetrics": {"width": width, "height": height, "pixelRatio": 2.0}}
        body = {"capabilities": {"alwaysMatch": {"browserName": "chrome", "goog:chromeOptions": options,
                                                 "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}}}
        for _ in range(100):
            try:
                self.session = None
                self.session = self.call("POST", "/session", body)["sessionId"]
                break
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.1)
        if dark:
            self.cdp("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark"}]})

    def call(self, method, path, body=None):
        base = "http://127.0.0.1:%d" % self.port + ("/session/" + self.session if self.session else "")
        data = json.dumps(body or {}).encode() if method == "POST" else None
        request = urllib.request.Request(base + path, data=data, method=method,
                                         headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as e:
            raise RuntimeError(json.load(e)["value"]["message"].splitlines()[0]) from None

    def close(self):
        try:
            self.call("DELETE", "")
        finally:
            self.driver.terminate()
            self.driver.wait()
            self.home.cleanup()

    def cdp(self, cmd, params):
        return self.call("POST", "/goog/cdp/execute", {"cmd": cmd, "params": params})

    def open(self, url):
        self.call("POST", "/url", {"url": url})

    def js(self, script, *args):
        return self.call("POST", "/execute/sync", {"script": script, "args": list(args)})

    def find(self, css):
        return self.call("POST", "/element", {"using": "css selector", "value": css})[ELEMENT]

    def click(self, css):
        self.call("POST", "/element/%s/click" % self.find(css))

    def type(self, css, text):
        self.call("POST", "/element/%s/value" % self.find(css), {"text": text})

    def keys(self, *chord):
        """Presses all of the chord together."""
        values = [KEYS.get(k, k) for k in chord]
        actions = [{"type": "keyDown", "value": v} for v in values]
        actions += [{"type": "keyUp", "value": v} for v in reversed(values)]
        self.call("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def wait(self, script, seconds=20):
        """Until the script's value is true."""
        end = time.time() + seconds
        while time.time() < end:
            value = self.js("return " + script)
            if value:
                return value
            time.sleep(0.05)
        raise RuntimeError("waited %d s for: %s" % (seconds, script))

    def log(self, kind="browser"):
        return self.call("POST", "/se/log", {"type": kind})

    def screenshot(self, path):
        with open(path, "wb") as f:
            f.write(base64.b64decode(self.call("GET", "/screenshot")))
