#!/usr/bin/env python3
"""tools/check_page.py TERN [FOLDER]: the chat page of `TERN serve` in a real Chromium, through its WebDriver.

Sends, streams, stops, edits, regenerates, walks branches, reloads, by keys and by buttons, at three widths, in two tabs,
while the server is away; nothing may be asked of another host or break the page's policy. Ends with "N passed, N
failed". With FOLDER, screenshots go there. Exit 77: no Chromium or chromedriver here."""
import http.server
import json
import os
import re
import subprocess
import sys
import threading
import time

from webdriver import Browser, find_browser

passed = failed = 0


def check(name, good):
    global passed, failed
    if good:
        passed += 1
    else:
        failed += 1
        print("FAIL  " + name)


def sides(b, kind):
    return b.js("return [...document.querySelectorAll('.turn.%s .body')].map((e) => e.innerText)" % kind)


def busy(b):
    return b.js("return document.getElementById('send').getAttribute('aria-label') === 'Stop'")


def idle(b):
    b.wait("document.getElementById('send').getAttribute('aria-label') === 'Send'", 60)


def say(b, text):
    b.type("#input", text + "\ue007")
    b.wait("document.querySelectorAll('.turn.assistant').length > 0")
    idle(b)


def talk(b, url):
    b.open(url)
    b.wait("document.querySelectorAll('#model option').length === 1")
    check("the model is named", b.js("return document.getElementById('model').value") == "pico")
    say(b, "Multiply 27 by 7.")
    check("an answer", "189" in sides(b, "assistant")[0])
    stats = b.js("return document.querySelector('.turn.assistant .stats').innerText")
    check("statistics: " + stats, re.search(r"tok/s.*tokens.*first.*read", stats, re.S))
    check("room", re.match(r"\d+ / 2[,.]?048", b.js("return document.getElementById('room').innerText")))
    check("a title", b.js("return document.title") == "Multiply 27 by 7. · tern")

    b.click(".turn.assistant [aria-label='Copy']")
    b.wait("document.getElementById('status').innerText.length > 0")
    check("copied: " + b.js("return document.getElementById('status').innerText"),
          b.js("return document.getElementById('status').innerText") == "Copied.")

    # Another version of the answer, and back.
    b.click(".turn.assistant [aria-label='Answer again']")
    idle(b)
    branch = "document.querySelector('.turn.assistant .branch')?.innerText"
    check("regenerated: " + str(b.js("return " + branch)), b.js("return " + branch) == "2 / 2")
    b.keys("alt", "left")
    check("an earlier version by keys", b.js("return " + branch) == "1 / 2")
    b.click(".turn.assistant [aria-label='Later version']")
    check("a later version by button", b.js("return " + branch) == "2 / 2")

    # An edit is a branch of its own.
    b.click("#input")
    b.keys("up")
    b.js("document.querySelector('.edit textarea').value = ''")
    b.type(".edit textarea", "Multiply 3 by 5.\ue007")
    b.wait("document.querySelectorAll('.turn.assistant').length === 1")
    idle(b)
    check("the edit was answered", "15" in sides(b, "assistant")[0])
    check("the edit is a branch", b.js("return document.querySelector('.turn.user .branch').innerText") == "2 / 2")
    b.click(".turn.user [aria-label='Earlier version']")
    check("the first question is back", sides(b, "user") == ["Multiply 27 by 7."])
    check("with its answers", b.js("return " + branch) == "2 / 2")


def stop(b):
    b.keys("control", "shift", "o")
    check("a new chat by keys", b.js("return document.querySelectorAll('.turn').length") == 0)
    b.type("#input", "Tell me a very long story about a bird.\ue007")
    b.wait("document.querySelector('.turn.assistant .body')?.innerText.length > 20")
    check("it streams", busy(b))
    b.keys("escape")
    idle(b)
    length = len(sides(b, "assistant")[0])
    check("stopped", "stopped" in b.js("return document.querySelector('.turn.assistant .foot').innerText"))
    time.sleep(0.3)
    check("and stays so", len(sides(b, "assistant")[0]) == length)
    say(b, "Multiply 4 by 6.")
    check("the chat goes on", len(sides(b, "assistant")) == 2)


def keep(b, url):
    titles = "return [...document.querySelectorAll('.chat > button:first-child')].map((e) => e.innerText)"
    b.open(url)
    b.wait("document.querySelectorAll('.chat').length === 2")
    check("chats are kept", len(b.js(titles)) == 2)
    b.js("[...document.querySelectorAll('.chat > button')].find((e) => e.innerText.startsWith('Multiply')).click()")
    check("and opened again", sides(b, "user") == ["Multiply 27 by 7."])
    b.type("#find", "bird")
    check("found by a word", [t.startswith("Tell me") for t in b.js(titles)] == [True])


def settings(b):
    b.keys("control", ",")
    b.wait("document.getElementById('settings').open")
    b.type("[name=max_tokens]", "3")
    b.type("[name=system]", "Be brief.")
    b.click("#settings .main")
    b.keys("control", "shift", "o")
    say(b, "Multiply 27 by 7.")
    foot = b.js("return document.querySelector('.turn.assistant .foot').innerText")
    check("settings are used: " + foot, "cut at the limit" in foot)
    b.click("#tune")
    b.click("#settings [value=clear]")
    b.click("#theme")
    check("the theme changes", b.js("return document.documentElement.dataset.theme") in ("dark", "light"))
    b.click("#theme")


def tabs(b, url):
    """A page that goes in the middle of an answer, and two tabs with the same chat: nothing is lost."""
    here = b.call("GET", "/window")
    b.keys("control", "shift", "o")
    b.type("#input", "Write a very long poem.\ue007")
    b.wait("document.querySelector('.turn.assistant .body')?.innerText.length > 20")
    b.open(url)
    title = "[...document.querySelectorAll('.chat > button')].find((e) => e.textContent.startsWith('Write')).click()"
    b.wait("document.querySelectorAll('.chat').length > 1")
    b.js(title)
    check("what came of a broken answer is kept", len(sides(b, "assistant")[0]) >= 20)
    check("and said to be", "broken off" in b.js("return document.querySelector('.turn.assistant .foot').innerText"))
    b.call("POST", "/window", {"handle": b.call("POST", "/window/new", {"type": "tab"})["handle"]})
    b.open(url)
    b.wait("document.querySelectorAll('.chat').length > 1")
    b.js(title)
    say(b, "Multiply 3 by 5.")
    both = sides(b, "user")
    b.call("DELETE", "/window")
    b.call("POST", "/window", {"handle": here})
    b.wait("document.querySelectorAll('.turn.user').length === 2")
    check("the other tab's turn is seen", sides(b, "user") == both)


def away(command):
    """A server that goes and comes back on its port."""
    b = Browser()
    server, url = start(command, "0")
    try:
        b.open(url)
        b.wait("document.querySelectorAll('#model option').length === 1")
        server.terminate()
        server.wait()
        say(b, "Multiply 27 by 7.")
        check("gone is said", "cannot be reached" in b.js("return document.querySelector('.fault').innerText"))
        b.keys("control", "shift", "o")
        server, _ = start(command, url.rstrip("/").rsplit(":", 1)[1])
        say(b, "Multiply 27 by 7.")  # waits for the model
        check("back: " + sides(b, "assistant")[-1], "189" in sides(b, "assistant")[-1])
    finally:
        b.close()
        server.terminate()
        server.wait()


def hostile(b):
    """What a model writes becomes text, whatever it looks like."""
    text = "# A <img src=x onerror=alert(1)>\n\n**b** [x](javascript:alert(1)) [y](https://e.example/)\n\n" \
           "```html\n<script>alert(2)</script>\n```\n\n| a | b |\n|---|---:|\n| 1 | `2` |\n\n" + "> " * 50 + "deep\n" + "*_" * 200
    b.js("const t = arguments[0]; window.out = document.createElement('div');"
         "import('./web/page_markdown.js').then((m) => { m.markdown(window.out, t); window.done = true; })", text)
    b.wait("window.done")
    check("no element of the text's own", b.js("return window.out.querySelectorAll('img,script,[onerror]').length") == 0)
    check("links lead to pages", b.js("return [...window.out.querySelectorAll('a')].map((a) => a.href)") ==
          ["https://e.example/"])
    check("columns stand as the table says", b.js(
        "return [...window.out.querySelectorAll('td')].map((e) => e.className)") == ["", "right"])
    check("a table and a block", b.js("return window.out.querySelectorAll('table,.block').length") == 2)
    b.js("window.done = false; import('./web/page_markdown.js').then((m) => {"
         "m.markdown(window.out, arguments[0]); document.body.append(window.out); window.done = true; })",
         "> שלום\n\n- مرحبا\n- a\n\nHi\n\n1. one\n\n   two\n")
    b.wait("window.done")
    check("each text has its own direction", b.js(
        "return [...window.out.children].map((e) => getComputedStyle(e).direction)") == ["rtl", "rtl", "ltr", "ltr"])
    check("an item's paragraphs are apart", b.js("return window.out.querySelectorAll('ol li p').length") == 1)
    b.js("window.out.remove()")


def narrow(url, folder):
    b = Browser(390, 844, dark=True)
    try:
        b.open(url)
        b.wait("document.querySelectorAll('#model option').length === 1")
        say(b, "Multiply 27 by 7.")
        wide = b.js("return document.documentElement.scrollWidth")
        check("nothing is wider than the telephone", wide <= 390)
        check("the list of chats is away", b.js("return getComputedStyle(document.getElementById('side')).visibility") ==
              "hidden")
        if folder:
            b.screenshot(os.path.join(folder, "chat_mobile.png"))
        b.click("#menu")
        time.sleep(0.4)
        check("and comes", b.js("return getComputedStyle(document.getElementById('side')).visibility") == "visible")
        check("no complaint on the telephone", b.log() == [])
    finally:
        b.close()


def strangers(url):
    """A page of another site, and a name that was rebound to this machine, reach nothing."""
    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<title>stranger</title>")

        def log_message(self, *args):
            pass

    other = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=other.serve_forever, daemon=True).start()
    b = Browser(more=["--host-resolver-rules=MAP evil.test 127.0.0.1",
                      "--disable-features=LocalNetworkAccessChecks,BlockInsecurePrivateNetworkRequests"])
    try:
        port = url.rstrip("/").rsplit(":", 1)[1]
        b.open("http://evil.test:%s/" % port)
        check("a rebound name is refused", "host_not_allowed" in b.js("return document.body.innerText"))
        b.open("http://evil.test:%d/" % other.server_port)
        b.js("const u = arguments[0]; window.said = []; const take = (p) => p.then((r) => said.push(r.status),"
             " () => said.push('refused'));"
             "take(fetch(u + 'v1/models')); take(fetch(u + 'v1/chat/completions', {method: 'POST', body: '{}'}));"
             "take(fetch(u + 'v1/chat/completions', {method: 'POST', body: '{}',"
             " headers: {'Content-Type': 'application/json'}}))", url)
        b.wait("said.length === 3")
        check("another site's page reads nothing", b.js("return said") == ["refused"] * 3)
    finally:
        b.close()
        other.shutdown()


def pictures(url, folder):
    for name, dark in (("chat_light.png", False), ("chat_dark.png", True)):
        b = Browser(1180, 800, dark=dark)
        try:
            b.open(url)
            b.wait("document.querySelectorAll('#model option').length === 1")
            say(b, "Multiply 27 by 7.")
            say(b, "Tell me about the moon.")
            b.screenshot(os.path.join(folder, name))
        finally:
            b.close()


def run(url, folder):
    b = Browser()
    try:
        talk(b, url)
        stop(b)
        keep(b, url)
        settings(b)
        tabs(b, url)
        hostile(b)
        complaints = b.log()
        check("no complaint of the browser: %s" % complaints, complaints == [])
        events = [json.loads(e["message"])["message"] for e in b.log("performance")]
        asked = {e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent" and
                 e["params"]["documentURL"].startswith(url)}  # the browser's own start page aside
        check("requests were seen", len(asked) > 5)
        check("only this server was asked: %s" % asked, all(u.startswith(url) for u in asked))
    finally:
        b.close()
    narrow(url, folder)
    strangers(url)
    if folder:
        pictures(url, folder)


def start(command, port):
    server = subprocess.Popen(command + ["serve", "--port", port, "--log", "none"], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True)
    return server, server.stdout.readline().strip() + "/"


def main():
    if not find_browser():
        print("no Chromium with chromedriver here (Debian: apt install chromium chromium-driver)")
        return 77
    command = sys.argv[1].split()
    server, url = start(command, "0")
    try:
        run(url, sys.argv[2] if len(sys.argv) > 2 else None)
        away(command)
    finally:
        server.terminate()
        server.wait()
    print("%d passed, %d failed" % (passed, failed))
    return 1 if failed else 0


sys.exit(main())
