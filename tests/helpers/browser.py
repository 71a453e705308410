"""A headless Chromium controlled through the DevTools protocol, which needs no driver."""

import asyncio
import base64
import itertools
import json
import shutil
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
POINT = """(() => {
  const element = document.querySelector(%s);
  element.scrollIntoView({block: "center"});
  const box = element.getBoundingClientRect();
  return [box.x + box.width * %s, box.y + box.height * %s];
})()"""


class Tab:
    """An open page."""

    def __init__(self, socket: Any) -> None:
        self.socket = socket
        self.numbers = itertools.count(1)
        self.problems: list[str] = []

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command and return its result; console errors received meanwhile are added to ``problems``."""
        number = next(self.numbers)
        await self.socket.send_json({"id": number, "method": method, "params": params})
        while True:
            message = json.loads((await asyncio.wait_for(self.socket.receive(), 60)).data)
            self._record_problems(message)
            if message.get("id") == number:
                assert "error" not in message, message
                return message["result"]

    async def run(self, code: str) -> Any:
        """Return the value of a JavaScript expression."""
        result = await self.call("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    async def open(self, address: str) -> None:
        """Load a page and wait until it is complete."""
        self.problems.clear()
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.call(f"{domain}.enable")
        await self.call("Page.navigate", url=address)
        for _ in range(300):
            if await self.run("location.href !== 'about:blank' && document.readyState === 'complete'"):
                return
            await asyncio.sleep(0.1)
        raise AssertionError(f"{address} did not load")

    async def click(self, selector: str, across: float = 0.5, down: float = 0.5) -> None:
        """Click an element: its center, or the point at these fractions of its width and height."""
        x, y = await self.hover(selector, across, down)
        for event in ("mousePressed", "mouseReleased"):
            await self.call("Input.dispatchMouseEvent", type=event, x=x, y=y, button="left", clickCount=1)

    async def hover(self, selector: str, across: float = 0.5, down: float = 0.5) -> tuple[float, float]:
        """Move the mouse over an element and return its position."""
        x, y = await self.run(POINT % (json.dumps(selector), across, down))
        await self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        return x, y

    async def wait(self, condition: str) -> None:
        """Wait until a JavaScript expression is true."""
        for _ in range(300):
            if await self.run(f"Boolean({condition})"):
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"{condition} did not become true; problems: {self.problems}")

    async def emulate(self, width: int, height: int, scheme: str) -> None:
        """Set the size of the window and the preferred color scheme, "light" or "dark"."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        await self.call("Emulation.setDeviceMetricsOverride", **size)
        await self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    async def screenshot(self, path: Path) -> None:
        """Write a PNG of the whole page."""
        size = (await self.call("Page.getLayoutMetrics"))["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        result = await self.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(result["data"]))

    def _record_problems(self, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        if message.get("method") == "Runtime.exceptionThrown":
            self.problems.append(str(params["exceptionDetails"]))
        if message.get("method") == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.problems.append(params["entry"]["text"])
        if message.get("method") == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.problems.append(str(params["args"]))
        if message.get("method") == "Network.requestWillBeSent":
            address = params["request"]["url"]
            if not address.startswith(("file:", "data:", "blob:", "about:")):
                self.problems.append(f"network request to {address}")


@asynccontextmanager
async def browser(folder: Path, width: int = 1280, height: int = 900) -> AsyncIterator[Tab]:
    """Start Chromium with its profile in ``folder`` and yield its tab."""
    import aiohttp

    assert CHROMIUM is not None
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
    flags += ["--remote-debugging-port=0", f"--user-data-dir={folder}", f"--window-size={width},{height}"]
    process = subprocess.Popen([CHROMIUM, *flags, "about:blank"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        port_file, deadline = folder / "DevToolsActivePort", time.monotonic() + 60
        while not port_file.is_file() or len(port_file.read_text().split()) < 2:
            assert process.poll() is None, "Chromium exited at startup"
            assert time.monotonic() < deadline, "Chromium did not start"
            await asyncio.sleep(0.1)
        port = port_file.read_text().split()[0]
        async with aiohttp.ClientSession() as session:
            tabs = await (await session.get(f"http://127.0.0.1:{port}/json/list")).json()
            address = next(tab["webSocketDebuggerUrl"] for tab in tabs if tab["type"] == "page")
            async with session.ws_connect(address, max_msg_size=0) as socket:
                yield Tab(socket)
    finally:
        process.terminate()
        process.wait(30)
