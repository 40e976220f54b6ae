"""The report in a real browser: `make browser`, which needs Chromium and its driver."""

import shutil
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.filterwarnings("ignore::ResourceWarning")]

TOP = Path(__file__).resolve().parents[1]
REPORTS = (TOP / "report" / "report.html", TOP / "report-quick" / "report.html")
WIDE, NARROW = (1400, 1000), (800, 1000)
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


class Quiet(SimpleHTTPRequestHandler):
    """A server of files that does not tell of each request."""

    def log_message(self, format, *args):
        pass


@pytest.fixture(scope="module")
def browser():
    webdriver = pytest.importorskip("selenium.webdriver")
    binary = next((found for name in CHROMIUM if (found := shutil.which(name))), None)
    driver = shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip("Chromium and chromedriver are needed")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for option in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage"):
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    window = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=driver))
    yield window
    window.quit()


@pytest.fixture(scope="module")
def address():
    """The address at which this machine serves the checkout to the browser."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=TOP))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def report(address, browser):
    """The report, read from its start in a wide window."""
    path = next((path for path in REPORTS if path.exists()), None)
    if path is None:
        pytest.skip("a report is needed: make reproduce")
    return opened(browser, f"{address}/{path.relative_to(TOP)}")


def opened(browser, url, size=WIDE):
    """Open a page anew in a window of a size."""
    browser.set_window_size(*size)
    browser.get("about:blank")
    browser.get(url)
    return browser


def waited(browser, condition, seconds=10):
    """Wait for a condition of the page; return what it holds."""
    from selenium.webdriver.support.wait import WebDriverWait

    return WebDriverWait(browser, seconds).until(lambda window: window.execute_script(condition))


def test_the_search_finds_a_theorem_and_leads_to_it_through_closed_folds(report):
    report.execute_script("document.querySelectorAll('details').forEach(fold => { fold.open = false; })")
    field = report.find_element("id", "search")
    field.send_keys("U11")
    names = report.execute_script("return [...document.querySelectorAll('#hits a')].map(link => link.textContent)")
    assert names
    assert all(name.startswith("U11") for name in names[:3])
    field.send_keys("\n")
    waited(report, "return location.hash.length > 1")
    target = "document.getElementById(decodeURIComponent(location.hash.slice(1)))"
    assert waited(
        report, f"const at = {target}.getBoundingClientRect(); return at.height > 0 && at.top < innerHeight && at.bottom > 0"
    )


def test_the_report_is_no_wider_than_its_window_and_has_no_error_and_all_its_pictures(report):
    for size in (NARROW, WIDE):
        opened(report, report.current_url, size)
        assert report.execute_script("return document.documentElement.scrollWidth <= innerWidth")
        assert report.find_element("id", "contents").get_property("open") is (size == WIDE)
    waited(report, "return document.readyState === 'complete'")
    report.execute_script("document.querySelectorAll('img').forEach(image => { image.loading = 'eager'; })")
    assert waited(report, "return [...document.images].every(image => image.complete)")
    assert report.execute_script("return [...document.images].filter(image => !image.naturalWidth).map(image => image.src)") == []
    complaints = [entry["message"] for entry in report.get_log("browser")]
    assert [text for text in complaints if "favicon" not in text] == [], "a site without an icon is no error"
