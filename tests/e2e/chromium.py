# SPDX-License-Identifier: Apache-2.0
"""Chromium by its DevTools protocol over pipes: descriptors 3 and 4, a JSON text and a NUL each way."""

import json
import os
import select
import shutil
import subprocess
import tempfile
import time

LIMIT_S = 60


class Error(Exception):
    """The browser said no, or nothing at all."""


class Browser:
    """One headless browser with one page; what the page logs is kept in `complaints`."""

    def __init__(self, width=1280, height=900):
        self.folder = tempfile.mkdtemp(prefix="ullage-chromium-")
        to_read, to_write = os.pipe()
        from_read, from_write = os.pipe()
        # The child's 3 and 4: dup2 in a shell, since Popen knows no descriptors by number.
        words = [find(), "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
                 "--disable-extensions", "--disable-background-networking", "--disable-dev-shm-usage",
                 f"--window-size={width},{height}", f"--user-data-dir={self.folder}", "--remote-debugging-pipe", "about:blank"]
        shell = f'exec 3<&{to_read} 4>&{from_write} "$@"'
        self.process = subprocess.Popen(["bash", "-c", shell, "bash", *words], pass_fds=(to_read, from_write), start_new_session=True,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        env={**os.environ, "HOME": self.folder})
        os.close(to_read)
        os.close(from_write)
        self.input, self.output = to_write, from_read
        self.bytes, self.next, self.session, self.complaints = b"", 0, None, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")
        self.resize(width, height)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for descriptor in (self.input, self.output):
            os.close(descriptor)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def read(self, until):
        while b"\0" not in self.bytes:
            ready, _, _ = select.select([self.output], [], [], max(0, until - time.monotonic()))
            part = os.read(self.output, 1 << 20) if ready else b""
            if not part:
                raise Error("the browser does not answer")
            self.bytes += part
        message, _, self.bytes = self.bytes.partition(b"\0")
        message = json.loads(message)
        if "method" in message:
            self.note(message["method"], message["params"])
        return message

    def note(self, method, params):
        if method == "Runtime.exceptionThrown":
            self.complaints.append(params["exceptionDetails"].get("exception", {}).get("description", "an exception"))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.complaints.append(json.dumps(params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.complaints.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent" and not params["request"]["url"].startswith(("file:", "about:")):
            self.complaints.append("asks for " + params["request"]["url"])

    def call(self, method, **params):
        self.next += 1
        message = {"id": self.next, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.input, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + LIMIT_S
        while True:
            answer = self.read(until)
            if answer.get("id") == self.next:
                if "error" in answer:
                    raise Error(f"{method}: {answer['error']['message']}")
                return answer["result"]

    def open(self, path, fragment=""):
        """Loads a file anew, and waits until it is there."""
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url="file://" + os.path.abspath(path) + fragment)
        until = time.monotonic() + LIMIT_S
        while self.run("location.protocol + document.readyState") != "file:complete":
            if time.monotonic() > until:
                raise Error(f"{path} is not loaded")
            time.sleep(0.01)

    def run(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise Error(answer["exceptionDetails"].get("exception", {}).get("description", expression))
        return answer["result"].get("value")

    def settle(self):
        """Until what was asked for is drawn."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def key(self, key, **more):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, **more)
        self.settle()

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x, y):
        self.mouse("mouseMoved", x, y)
        self.mouse("mousePressed", x, y, button="left", buttons=1, clickCount=1)
        self.mouse("mouseReleased", x, y, button="left", clickCount=1)
        self.settle()

    def resize(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def colors(self, scheme):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def picture(self, clip=None):
        """PNG, base 64; of the whole page, or of [x, y, width, height] of it."""
        more = {"clip": dict(zip(("x", "y", "width", "height"), clip), scale=1)} if clip else {}
        return self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, **more)["data"]


def find():
    """The browser's program, or None."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
