"""The site in a real browser without a head: Debian's chromium, driven by Selenium. `tox -e browser` installs both.

Pages load without an error in the console; filters, sorting, links and the keyboard work; nothing is wider than a
telephone; 5,000 rows open in under 2 s and are filtered in under 0.1 s. `ASSAY_SCREENSHOTS=DIR` keeps what was seen.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sqlalchemy", reason="the store needs the extra `nightly`")
pytest.importorskip("alembic", reason="the store needs the extra `nightly`")
pytest.importorskip("plotly", reason="the figures need the extra `nightly`")
pytest.importorskip("selenium", reason="the browser is driven by Selenium: tox -e browser")

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

from assay.harness.remember.store import Store
from assay.harness.remember.verdict_on_run import base_of, judge_run
from assay.harness.site.publish import publish
from tests.harness.site.night import night

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="no chromium with its driver: tox -e browser")
ROWS = 5000
OPENS_S, FILTERS_MS = 2.0, 100.0
SIZES = {"telephone": (375, 800), "desk": (1440, 900)}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("site")
    with Store.open(f"sqlite:///{folder}/store.sqlite") as store:
        run = night(store, ROWS)
        yield publish(store, judge_run(store, run, base_of(store, run)), folder / "site").parent


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(str(DRIVER)))
    yield driver
    driver.quit()


def sized(browser: webdriver.Chrome, size: str, is_dark: bool = False) -> None:
    width, height = SIZES[size]
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": size == "telephone"}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})


def opened(browser: webdriver.Chrome, site: Path, page: str) -> None:
    browser.get("about:blank")
    browser.get((site / page.partition("#")[0]).as_uri() + ("#" + page.partition("#")[2] if "#" in page else ""))


def errors(browser: webdriver.Chrome) -> list[Any]:
    return [entry for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]


def kept(browser: webdriver.Chrome, name: str) -> None:
    folder = os.environ.get("ASSAY_SCREENSHOTS")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        browser.save_screenshot(f"{folder}/{name}.png")


def until(browser: webdriver.Chrome, holds: Callable[[webdriver.Chrome], Any]) -> Any:
    return WebDriverWait(browser, 20).until(holds)


def rows(browser: webdriver.Chrome) -> list[str]:
    script = "return [...document.querySelectorAll('#rows tr')].map(r => r.innerText)"
    return list(browser.execute_script(script))


WITH_FIGURES = (
    "trends.html",
    "compile.html",
    "kernels.html",
    "memory.html",
    "cases/zoo.case_6.html",
    "cases/zoo.case_0.html",
)
PAGES = ("index.html", *WITH_FIGURES, f"causes/{'f' * 16}.html")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("page", PAGES)
def test_pages_fit_and_say_no_error(browser: webdriver.Chrome, site: Path, page: str, size: str) -> None:
    for is_dark in (False, True):
        sized(browser, size, is_dark)
        opened(browser, site, page)
        if page in WITH_FIGURES:
            until(browser, lambda b: b.find_elements(By.CSS_SELECTOR, ".figure .main-svg"))
            time.sleep(0.3)
        kept(browser, f"{Path(page).stem[:12]}_{size}{'_dark' if is_dark else ''}")
        wide = browser.execute_script("return document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, f"{page} is {wide} pixels wider than a {size}"
        assert errors(browser) == []


def test_rows_show_their_verdict_on_a_telephone(browser: webdriver.Chrome, site: Path) -> None:
    sized(browser, "telephone")
    opened(browser, site, "index.html")
    until(browser, lambda b: rows(b))
    right = "return document.querySelector('#rows .tag').getBoundingClientRect().right"
    assert 0 < browser.execute_script(right) < SIZES["telephone"][0]


def test_rows_open_and_filter_in_time(browser: webdriver.Chrome, site: Path) -> None:
    sized(browser, "desk")
    start = time.perf_counter()
    opened(browser, site, "index.html")
    until(browser, lambda b: rows(b))
    opens_s = time.perf_counter() - start
    box = browser.find_element(By.ID, "filter-text")
    times = []
    for text in ("case_49", "9", " zoo"):
        box.send_keys(text)
        times.append(browser.execute_script("return window.filterMs"))
    print(f"{ROWS} rows open in {opens_s:.2f} s, filter in at most {max(times):.0f} ms")
    assert opens_s < OPENS_S and max(times) < FILTERS_MS
    found = rows(browser)
    assert found and all("case_499" in row and "zoo" in row for row in found)


def test_filters_have_stable_links(browser: webdriver.Chrome, site: Path) -> None:
    sized(browser, "desk")
    opened(browser, site, "index.html#verdict=crash&backend=inductor%2Cdynamic")
    until(browser, lambda b: rows(b))
    assert browser.find_element(By.ID, "count").text.startswith(f"{ROWS // 20} of {ROWS}")
    Select(browser.find_element(By.ID, "filter-suite")).select_by_value("zoo")
    until(browser, lambda b: "suite=zoo" in b.execute_script("return location.hash"))
    assert "verdict=crash" in browser.execute_script("return location.hash")
    browser.find_element(By.LINK_TEXT, "zoo.case_21").click()
    assert browser.find_element(By.TAG_NAME, "h1").text == "zoo.case_21"
    browser.back()
    until(browser, lambda b: rows(b))
    assert all("crash" in row for row in rows(browser))


def test_filters_take_one_of_several_dtypes_and_layouts(browser: webdriver.Chrome, site: Path) -> None:
    sized(browser, "desk")
    opened(browser, site, "index.html#dtype=int64&layout=transposed")
    until(browser, lambda b: rows(b))
    some = sum(1 for number in range(ROWS) if number % 4 and number % 5 == 0)
    assert browser.find_element(By.ID, "count").text.startswith(f"{some} of {ROWS}")
    offered = [each.text for each in Select(browser.find_element(By.ID, "filter-layout")).options]
    assert offered == ["any", "contiguous", "transposed"]


def test_rows_are_sorted_and_more_are_shown(browser: webdriver.Chrome, site: Path) -> None:
    sized(browser, "desk")
    opened(browser, site, "index.html")
    assert len(rows(browser)) == 100
    browser.find_element(By.ID, "more").click()
    assert len(rows(browser)) == 600
    header = browser.find_element(By.CSS_SELECTOR, "[data-column=compile_s]")
    header.click()
    header.click()
    assert header.find_element(By.XPATH, "..").get_attribute("aria-sort") == "descending"
    assert "6.10" in rows(browser)[0]


def test_keyboard_reaches_search_and_content(browser: webdriver.Chrome, site: Path) -> None:
    sized(browser, "desk")
    opened(browser, site, "index.html")
    body = browser.find_element(By.TAG_NAME, "body")
    body.send_keys(Keys.TAB)
    assert browser.switch_to.active_element.get_attribute("class") == "skip"
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    assert browser.switch_to.active_element.get_attribute("id") == "main"
    browser.switch_to.active_element.send_keys("/")
    assert browser.switch_to.active_element.get_attribute("id") == "filter-text"


def test_the_reader_chooses_light_or_dark(browser: webdriver.Chrome, site: Path) -> None:
    sized(browser, "desk")
    opened(browser, site, "index.html")
    colour = "return getComputedStyle(document.body).backgroundColor"
    before = browser.execute_script(colour)
    browser.find_element(By.ID, "theme").click()
    after = browser.execute_script(colour)
    assert before != after
    opened(browser, site, "index.html")
    assert browser.execute_script(colour) == after
    browser.execute_script("localStorage.clear()")
