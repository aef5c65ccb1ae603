"""report.html in a real browser, from file://, alone in its folder and with the network off: every chart is drawn.

The page of a synthetic run, made here, and that of every run committed under reports/.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from openjev_lab.report import render

pytestmark = pytest.mark.browser
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--window-size=1280,1000",
    # every name and every proxy leads nowhere: whatever the page tried to fetch would fail and be logged
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--proxy-server=127.0.0.1:9",
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """Headless Chromium by Debian's driver; absent, it is a failure in CI and a skip on somebody's laptop."""
    from selenium import webdriver

    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (chromium and driver):
        message = "no chromium and chromedriver on PATH: apt-get install chromium chromium-driver"
        pytest.fail(message) if os.environ.get("CI") == "true" else pytest.skip(message)
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    session = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    session.execute_cdp_cmd("Network.enable", {})
    offline = {"offline": True, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    session.execute_cdp_cmd("Network.emulateNetworkConditions", offline)
    yield session
    session.quit()


ROOT = Path(__file__).resolve().parents[2]


def committed() -> list[str]:
    """Pages of committed runs, from the project's root; none in a copy without its history."""
    command = ["git", "ls-files", "--", f"reports/*/{render.REPORT}"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.split()


@pytest.fixture(scope="module", params=["synthetic", *committed()])
def opened(browser, rendered, tmp_path_factory, request):
    """The page, open and drawn; no file lies beside it."""
    from selenium.webdriver.support.ui import WebDriverWait

    page = tmp_path_factory.mktemp("alone") / render.REPORT
    shutil.copy(rendered / render.REPORT if request.param == "synthetic" else ROOT / request.param, page)
    browser.get("about:blank")
    for log in ("browser", "performance"):
        browser.get_log(log)  # reading empties it: what chromium did for itself at its start goes
    browser.get(page.as_uri())
    WebDriverWait(browser, 30).until(lambda b: b.execute_script("return document.body.dataset.drawn"))
    return browser


@pytest.mark.parametrize("name", render.CHARTS)
def test_the_chart_is_drawn(opened, name):
    marks, width = opened.execute_script(
        "const svg = document.querySelector(`#chart-${arguments[0]} svg`);"
        "return [svg.querySelectorAll('.mark-rect path, .mark-symbol path, .mark-line path').length,"
        " svg.getBoundingClientRect().width]",
        name,
    )
    assert marks >= 5
    assert 300 < width <= 1080


def test_nothing_is_fetched_and_nothing_is_logged(opened):
    problems = [entry for entry in opened.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]
    assert problems == []
    events = [json.loads(entry["message"])["message"] for entry in opened.get_log("performance")]
    asked = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert any(url.endswith(render.REPORT) for url in asked), "the log holds what was asked for"


def test_nothing_is_wider_than_the_page(opened):
    assert opened.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")
    cut = opened.execute_script(
        "const wide = (e) => e.scrollWidth > e.clientWidth + 1;"
        "return [...document.querySelectorAll('.table > div')].filter(wide).map((e) => e.id)"
    )
    assert cut == []
