"""Pages of `gapless view` in headless Chromium (tools/setup/browser.sh installs it)."""
import json
import os
import pathlib
import subprocess
import sys
import time

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

ROOT = pathlib.Path(__file__).resolve().parents[2]
GAPLESS = ROOT / "build/release/bin/gapless"
TRACES = ROOT / "examples/traces"
LIBRARIES = ROOT / "build/release/lib"


class Browser:
    def __init__(self, width=1280, height=800):
        options = Options()
        options.binary_location = "/usr/bin/chromium"
        for flag in ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--window-size={width},{height}"]:
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
        self.driver.set_script_timeout(120)
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                    {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})

    def prefer(self, scheme: str):
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})

    def open(self, page: pathlib.Path, link="") -> float:
        """Opens a page, waits until it is drawn, and returns after how many milliseconds it was ready."""
        self.driver.get("about:blank")
        self.driver.get_log("browser")
        self.driver.get(f"file://{page}{link}")
        ready = self.wait(lambda: self.run("return document.documentElement.dataset.ready"), "the page to be ready")
        self.settle()
        return float(ready)

    def wait(self, holds, what: str):
        for _ in range(600):
            result = holds()
            if result:
                return result
            time.sleep(0.05)
        raise AssertionError(f"waited in vain for {what}; the console says {self.console()}")

    def settle(self):
        """Waits for two frames, and until all that was asked for is drawn: what is much takes several."""
        self.driver.execute_async_script("""
            const done = arguments[0];
            const look = () => window.gaplessView?.busy ? requestAnimationFrame(look) : done();
            requestAnimationFrame(() => requestAnimationFrame(look));""")

    def run(self, script: str, *arguments):
        return self.driver.execute_script(script, *arguments)

    def console(self) -> list[str]:
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def press(self, *keys: str):
        webdriver.ActionChains(self.driver).send_keys(*keys).perform()
        self.settle()

    def text(self, selector: str) -> str:
        return self.run("return document.querySelector(arguments[0]).textContent", selector)

    def number(self, selector: str) -> int:
        """The number that an element shows, in full."""
        return int(self.run("return document.querySelector(arguments[0]).dataset.value", selector))

    def event(self) -> int:
        """The number of the moment that is shown."""
        return self.run("const pane = gaplessView.active; return pane.trace.eventNumber(pane.shown)")


@pytest.fixture(scope="session")
def browser():
    started = Browser()
    started.prefer("light")
    yield started
    started.driver.quit()


@pytest.fixture(scope="session")
def view(tmp_path_factory):
    """Makes a page of traces: returns it with what the command says of it as JSON."""
    folder = tmp_path_factory.mktemp("pages")

    def make(*traces, name="page.html"):
        page = folder / name
        done = subprocess.run([GAPLESS, "view", *traces, "-o", page, "--json"], capture_output=True, text=True, check=True)
        return page, json.loads(done.stdout)

    return make


# What programs for recorded() begin and end with: alloc(bytes) and free(address) on a device of gapless's.
PROGRAM = """
import ctypes, random, sys
gapless = ctypes.CDLL(sys.argv[1])
gapless.gapless_last_error.restype = ctypes.c_char_p
allocator = ctypes.c_void_p()
def done(status):
    if status != 0: raise MemoryError(gapless.gapless_last_error())
def alloc(size):
    address = ctypes.c_void_p()
    done(gapless.gapless_alloc(allocator, 0, ctypes.c_size_t(size), None, ctypes.byref(address)))
    return address
def free(address): done(gapless.gapless_free(allocator, address))
def trim(): done(gapless.gapless_trim(allocator, 0, ctypes.c_size_t(0)))
def record(): done(gapless.gapless_record(allocator, sys.argv[2].encode(), 0))
MiB = 1 << 20
done(gapless.gapless_create(None, ctypes.byref(allocator)))
{}
done(gapless.gapless_record_end(allocator))
done(gapless.gapless_dump(allocator, sys.argv[3].encode()))
"""


@pytest.fixture
def recorded(tmp_path):
    """recorded(program): a recording of gapless on a simulated GPU of 2 GiB, and a dump of its end as JSON."""

    def run(program: str):
        recording, dump = tmp_path / "run.gtrace", tmp_path / "dump.json"
        environment = {**os.environ, "LD_PRELOAD": str(LIBRARIES / "simgpu/libsimgpu.so"),
                       "LD_LIBRARY_PATH": str(LIBRARIES / "simgpu"), "SIMGPU_GPUS": "2GiB"}
        subprocess.run([sys.executable, "-c", PROGRAM.format(program), LIBRARIES / "libgapless.so", recording, dump],
                       env=environment, check=True)
        return recording, json.loads(dump.read_text())

    return run
