"""The page in headless Chromium: real clicks, typing and pointing, at the sizes of a desk and of a telephone.

With CUTEPY_SCREENSHOTS=docs/screenshots, the pictures of docs/explorer.md are taken.
"""

import json
import os
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("selenium", reason="needs selenium, which drives the browser")
from selenium import webdriver
from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException
from selenium.webdriver import ActionChains
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

from tests.explorer.timelines import measured, predicted

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
CHROMEDRIVER = shutil.which("chromedriver")
pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(
        not (CHROMIUM and CHROMEDRIVER),
        reason="needs chromium and chromedriver: apt-get install chromium chromium-driver",
    ),
]

SCREENSHOTS = Path(os.environ.get("CUTEPY_SCREENSHOTS", ""))
SIZES = {"desk": (1280, 800), "telephone": (390, 844)}
FLAGS = """--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
--disable-component-update --disable-sync --disable-dev-shm-usage --hide-scrollbars""".split()


@pytest.fixture(scope="module")
def profile_file(tmp_path_factory):
    from cutepy.profiling import Record, Recording, ScopeCall

    scopes = ScopeCall("model"), ScopeCall("attention", 0, flops=8e8), ScopeCall("mlp", 0)
    spans = (("gemm", 0, 4000, 1), ("softmax", 5000, 7000, 1), ("gemm", 8000, 12000, 2), ("memset", 12000, 12001, 2))
    records = tuple(Record(name, start_ns=begin, end_ns=end, scope=scope) for name, begin, end, scope in spans)
    path = tmp_path_factory.mktemp("profile") / "p.json"
    Recording(records, scopes, "cupti", "NVIDIA H200", ("a limit",)).save(path)
    return path


@pytest.fixture(scope="module")
def timeline_files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("timelines")
    for name, data in (("p.json", predicted()), ("m.trace", measured())):
        (folder / name).write_bytes(data)
    return folder / "p.json", folder / "m.trace"


@pytest.fixture(scope="module")
def server(saved_run, profile_file, timeline_files):
    from werkzeug.serving import make_server

    from cutepy.explorer.app import create_app
    from cutepy.explorer.serving import QuietHandler

    app = create_app(runs=(saved_run,), profiles=(profile_file,), timelines=timeline_files)
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=QuietHandler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.port}/"
    server.shutdown()
    thread.join()
    server.server_close()
    app.extensions["calculator"].close()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(CHROMEDRIVER))
    yield driver
    driver.quit()


EVERY_SIZE = pytest.mark.parametrize("page", SIZES, indirect=True)


class Page:
    """The page, by what people see: labels, buttons, cells."""

    def __init__(self, driver, base, size):
        self.driver, self.base = driver, base
        self.width, height = SIZES[size]
        metrics = {"width": self.width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def open(self, query=""):
        self.driver.get(self.base + query)
        self.wait(self.idle)

    def idle(self):
        return self.driver.execute_script("return document.body.getAttribute('aria-busy') === 'false'")

    def wait(self, condition):
        # What is drawn anew meanwhile is looked for again.
        waiting = WebDriverWait(self.driver, 15, 0.02, [NoSuchElementException, StaleElementReferenceException])
        return waiting.until(lambda _: condition())

    def all(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def labelled(self, label):
        return self.one(f"#{next(x.get_attribute('for') for x in self.all('label') if x.text == label)}")

    def unfold(self):
        for summary in self.all("section:not([hidden]) details.more:not([open]) > summary"):
            summary.click()

    def type(self, label, text):
        field = self.labelled(label)
        field.clear()
        field.send_keys(text)
        return field

    def cell(self, i, j, within="section:not([hidden])"):
        return self.wait(lambda: self.all(f"{within} td[data-row='{i}'][data-column='{j}']"))[0]

    def facts(self, of="#facts"):
        texts = self.driver.execute_script(
            "return [...document.querySelectorAll(arguments[0] + ' > div')]"
            ".map(d => [d.children[0].textContent, d.children[1].textContent])",
            of,
        )
        return dict(texts)

    def point_at(self, element):
        self.driver.execute_script("arguments[0].scrollIntoView({block: 'center', inline: 'center'})", element)
        ActionChains(self.driver).move_to_element(element).perform()

    def fits(self):
        assert self.driver.execute_script("return document.documentElement.scrollWidth") <= self.width

    def screenshot(self, name):
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.driver.save_screenshot(str(SCREENSHOTS / f"{name}.png"))


@pytest.fixture(params=["desk", pytest.param("telephone", marks=pytest.mark.deep)])
def page(request, browser, server):
    browser.get_log("browser")
    page = Page(browser, server, request.param)
    yield page
    page.fits()
    # A refused question is logged as one; scripts and policies must have nothing to say.
    told = [entry["message"] for entry in browser.get_log("browser") if entry["source"] != "network"]
    assert told == []


@EVERY_SIZE
def test_typing_a_layout_and_pointing_at_it(page):
    page.open()
    page.type("Layout expression", "Sw<3,3,3> o 0 o (8,64):(64,1)").send_keys(Keys.ENTER)
    page.wait(lambda: "expression=Sw" in page.driver.current_url and page.idle())
    page.point_at(page.cell(1, 1))
    page.wait(lambda: page.facts().get("coordinate") == "(1,1)")
    assert page.facts() == {"coordinate": "(1,1)", "index": "9", "offset": "73", "byte": "146", "bank": "4"}
    page.wait(lambda: len(page.all("#chain li")) == 6)
    chain = [step.text for step in page.all("#chain li b")]
    assert chain == ["9", "(1,1)", "65", "73", "146", "4"]


@EVERY_SIZE
def test_no_cell_is_covered_by_what_is_said_of_it(page):
    page.open("?view=layout&expression=Sw<3,3,3> o 0 o (64,64):(64,1)&bits=16")
    for i, j in ((0, 0), (17, 5), (40, 3), (63, 60)):
        page.cell(i, j).click()  # selenium refuses where another element would be hit
        page.wait(lambda at=f"({i},{j})": page.facts().get("coordinate") == at)
        before = page.cell(i, j).rect["y"]
        page.wait(lambda: page.all("#chain li"))
        assert page.cell(i, j).rect["y"] == before
        page.cell(i, j).click()


def test_a_number_that_the_field_forbids_is_told_like_other_mistakes(page):
    page.open("?view=atom")
    page.type("N of the atom", "13").send_keys(Keys.ENTER)
    error = page.wait(lambda: next((e for e in page.all("#atom-error") if e.is_displayed()), None))
    assert "N must be a multiple of 8" in error.text


def test_moving_between_cells_with_the_keyboard(page):
    page.open("?view=layout&expression=(4,8):(8,1)")
    page.cell(0, 0).click()
    for key in (Keys.ARROW_DOWN, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.END):
        page.driver.switch_to.active_element.send_keys(key)
    page.wait(lambda: page.facts().get("coordinate") == "(1,7)")
    assert page.facts()["offset"] == "15"
    focused = page.driver.switch_to.active_element
    assert (focused.get_attribute("data-row"), focused.get_attribute("data-column")) == ("1", "7")


def test_a_mistake_is_shown_in_place(page):
    page.open()
    page.type("Layout expression", "(4,8):(8,x)").send_keys(Keys.ENTER)
    error = page.wait(lambda: next((e for e in page.all("#layout-error") if e.is_displayed()), None))
    assert error.text.endswith("\n  (4,8):(8,x)\n           ^")
    assert page.labelled("Layout expression").get_attribute("aria-invalid") == "true"
    assert not page.all("#layout-picture td")
    page.type("Layout expression", "(4,8):(8,1)").send_keys(Keys.ENTER)
    page.wait(lambda: page.all("#layout-picture td"))
    assert not page.one("#layout-error").is_displayed()
    assert page.labelled("Layout expression").get_attribute("aria-invalid") == "false"


def test_banks_and_threads(page):
    page.open("?view=layout&expression=(8,64):(64,1)&bits=16")
    Select(page.labelled("Show")).select_by_visible_text("banks")
    page.wait(lambda: page.cell(0, 2).text == "1" and page.cell(1, 63).text == "31")
    page.open("?view=layout&expression=((4,8,4),(2,2,8)):((128,1,16),(64,8,512))&show=threads&tile=(64,64)")
    assert page.cell(9, 1).text == "T4\nV3"
    page.point_at(page.cell(9, 1))
    page.wait(lambda: page.facts().get("thread") == "4")
    assert page.facts()["value"] == "3"
    assert len(page.all("td.same")) == 32


def test_the_address_is_the_state(page):
    page.open("?view=layout&expression=(2,3):(3,1)")
    assert page.labelled("Layout expression").get_attribute("value") == "(2,3):(3,1)"
    assert [cell.text for cell in page.all("#layout-picture td")] == list("012345")
    page.type("Layout expression", "(3,2):(2,1)").send_keys(Keys.ENTER)
    page.wait(lambda: len(page.all("#layout-picture tbody tr")) == 3)
    page.one("#tab-compare").click()
    page.wait(lambda: page.all("#compare-picture td"))
    page.driver.back()
    page.wait(lambda: page.one("#view-layout").is_displayed() and len(page.all("#layout-picture tbody tr")) == 3)
    page.driver.back()
    page.wait(lambda: len(page.all("#layout-picture tbody tr")) == 2)
    assert page.labelled("Layout expression").get_attribute("value") == "(2,3):(3,1)"
    page.driver.forward()
    page.wait(lambda: len(page.all("#layout-picture tbody tr")) == 3)


@EVERY_SIZE
def test_sliding_through_an_operation(page):
    page.open("?view=steps")
    page.type("Layout", "(4,6):(6,1)")
    Select(page.labelled("Operation")).select_by_visible_text("zipped_divide")
    page.type("Tiler or right operand", "(2,3)").send_keys(Keys.ENTER)
    page.wait(lambda: "((2,3),(2,2)):((6,1),(12,3))" in page.one("#steps-result").text)
    titles = []
    page.wait(lambda: page.one("#step-number").text == "3 of 3")
    for number in (2, 1):
        titles.insert(0, page.one("#steps-picture .title").text)
        page.one("#previous-step").click()
        page.wait(lambda number=number: page.one("#step-number").text == f"{number} of 3")
    titles.insert(0, page.one("#steps-picture .title").text)
    assert [title.partition(" ")[0] for title in titles] == ["layout", "logical_divide", "zipped_divide"]
    assert len(page.all("#steps-picture td.m")) == 6
    assert "step=0" in page.driver.current_url
    page.driver.back()
    page.wait(lambda: page.one("#step-number").text == "2 of 3")
    page.one("#all-steps").click()
    page.wait(lambda: len(page.all("#steps-picture table")) == 3)


def test_comparing(page):
    page.open("?view=compare&first=(2,4):(1,2)&second=(2,4):(4,1)")
    assert page.one("#compare-result").text == "6 of 8 elements differ"
    assert len(page.all("#compare-picture td.m")) == 12


def test_an_atom_and_its_operands(page):
    page.open("?view=atom&n=64&tile_n=64&picture=sA")
    assert page.facts("#atom-facts")["atom"] == "SM90_64x64x16_F32F16F16_SS"
    assert page.one("#sA-layout").text == "Sw<3,3,3> o 0 o ((8,16),(64,1)):((64,512),(1,0))"
    fields = {row.text.split(" ")[0] for row in page.all("#sA-fields tr")}
    assert {"start", "leading", "stride", "layout"} <= fields
    page.point_at(page.cell(70, 17))
    page.wait(lambda: page.facts().get("coordinate") == "((6,8),(17,0))")
    assert page.facts()["descriptor"].startswith("tCrA[1,1] 0x4000")
    page.unfold()
    Select(page.labelled("Swizzle of A")).select_by_visible_text("SW64")
    page.wait(lambda: page.one("#sA-layout").text.startswith("Sw<2,3,3>"))
    Select(page.labelled("Picture")).select_by_visible_text("C")
    page.wait(lambda: page.cell(0, 0).text == "T0\nV0")
    page.wait(page.idle)
    page.point_at(page.cell(0, 0))
    page.wait(lambda: page.facts().get("thread") == "0")


def test_a_tensor_core_mma_and_its_operands(page):
    page.open("?view=umma&m=64&n=8")
    assert page.facts("#umma-facts")["atom"] == "SM100_MMA_F16BF16_SS<half_t,half_t,float,64,8,K,K>"
    assert page.facts("#umma-facts")["instruction descriptor"] == "0x04020010"
    assert page.facts("#umma-partitions")["D in tensor memory"] == "((16,4),8):((65536,2097152),1), 8 columns"
    assert page.cell(33, 5).text == "(17,5)"
    assert page.one("#umma-fields").text.startswith("bits value meaning")
    page.point_at(page.cell(33, 5))
    page.wait(lambda: page.facts().get("lane") == "33")
    page.unfold()
    Select(page.labelled("Picture")).select_by_visible_text("sA")
    page.wait(lambda: page.facts("#umma-facts") and page.one("#umma-picture .title").text.startswith("Sw<"))
    assert {"start", "version", "LBO"} <= {row.text.split(" ")[0] for row in page.all("#umma-sA-fields tr")}
    page.wait(page.idle)
    page.point_at(page.cell(20, 17))
    page.wait(lambda: page.facts().get("descriptor", "").startswith("tCrA[0,1] 0x4000"))
    page.type("N of the atom", "13").send_keys(Keys.ENTER)
    page.wait(lambda: "multiple of 8" in page.one("#umma-error").text)


@EVERY_SIZE
def test_scrubbing_through_a_run(page, saved_run):
    page.open("?view=run")
    total = int(page.wait(lambda: page.one("#event-number").text).split()[-1])
    page.open(f"?view=run&at={total - 1}")
    page.wait(lambda: page.all("#shared-picture td"))
    assert page.facts("#event-facts")["line"].endswith("kernel.py:36")
    page.one("#previous-event").click()
    page.wait(lambda: page.one("#event-number").text.startswith(f"{total - 2} "))
    # Back to where warp 1 waits for warp 0.
    while "warps 1 wait for" not in page.one("#waiting").text:
        page.driver.execute_script("arguments[0].click()", page.one("#previous-event"))
    assert "arrive mbarrier 0x400 by warps 0" in page.one("#waiting").text
    assert page.all("svg.timeline path.released, svg.timeline rect[data-wait]")
    rows = [[cell.text for cell in row.find_elements(By.TAG_NAME, "td")] for row in page.all("#barriers tr")[1:]]
    assert rows == [["mbarrier 0x400", "1", "1 of 1", "0"]]  # warp 0 has just arrived
    page.type("Through a layout", "(4,8):(8,1)")
    Select(page.labelled("Type")).select_by_visible_text("uint32")
    page.driver.execute_script("arguments[0].click()", page.one("#run-shared"))
    page.wait(lambda: len(page.all("#shared-picture td")) == 32)
    assert "layout=%284%2C8%29" in page.driver.current_url
    page.one("#file").send_keys(str(saved_run))
    page.wait(lambda: "run=" in page.driver.current_url and len(page.all("#run option")) == 1)


def test_a_file_that_is_no_run_is_refused(page, tmp_path):
    page.open("?view=run")
    (tmp_path / "junk.cutepy").write_bytes(b"junk")
    page.one("#file").send_keys(str(tmp_path / "junk.cutepy"))
    page.wait(lambda: "not a saved run" in page.one("#run-error").text)


def test_everything_has_a_name(page):
    page.open()
    unnamed = page.driver.execute_script(
        "return [...document.querySelectorAll('input, select, button, [role=tab]')].filter(x => "
        "!(x.labels?.length || x.getAttribute('aria-label') || x.textContent.trim())).map(x => x.outerHTML)"
    )
    assert unnamed == []
    assert [tab.get_attribute("aria-selected") for tab in page.all("[role=tab]")] == ["true"] + ["false"] * 7
    page.one("#tab-layout").send_keys(Keys.ARROW_RIGHT)
    page.wait(lambda: page.one("#view-steps").is_displayed())
    assert page.driver.switch_to.active_element.get_attribute("id") == "tab-steps"


BUSY = """
    const done = arguments[arguments.length - 1];
    const look = setInterval(() => {
        if (document.body.getAttribute("aria-busy") !== "false") return;
        clearInterval(look);
        done(document.querySelectorAll("#shared-picture [role=grid]").length);
    }, 1);
"""


def test_the_page_is_busy_until_shared_memory_is_drawn(page):
    for _ in range(5):
        page.driver.get(page.base + "?view=run&at=3")
        assert page.driver.execute_async_script(BUSY) == 1
    page.one("#next-event").click()
    assert page.driver.execute_script("return document.body.getAttribute('aria-busy')") in ("true", "false")
    page.wait(page.idle)


ON_A_TELEPHONE = pytest.mark.parametrize("page", ["telephone"], indirect=True)


@ON_A_TELEPHONE
@pytest.mark.parametrize("view", ["layout", "steps", "compare", "atom", "umma"])
def test_the_picture_begins_on_the_first_screen(page, view):
    page.open(f"?view={view}")
    assert page.one(f"#{view}-picture table").rect["y"] < 0.75 * page.one("#inspector").rect["y"]


@ON_A_TELEPHONE
def test_all_tabs_are_on_a_narrow_screen(page):
    page.open()
    for tab in page.all("[role=tab]"):
        assert 0 <= tab.rect["x"]
        assert tab.rect["x"] + tab.rect["width"] <= page.width
        tab.click()


@ON_A_TELEPHONE
def test_folded_fields_open_where_one_is_wrong(page):
    page.open("?view=atom")
    assert not page.one("#stages").is_displayed()
    page.open("?view=atom&stages=99")
    page.wait(lambda: page.one("#atom-error").is_displayed())
    assert page.one("#stages").is_displayed()


def test_an_atom_shows_its_accumulators_first(page):
    page.open("?view=atom")
    assert Select(page.labelled("Picture")).first_selected_option.text == "C"
    assert ": C, 128x128" in page.one("#atom-picture .title").text
    assert page.one("#stages").is_displayed() == (page.width > 700)
    page.unfold()
    assert page.labelled("Stages").is_displayed()


@EVERY_SIZE
def test_a_large_tile_is_drawn(page):
    page.open("?view=layout&bits=16&expression=(128,128):(128,1)")
    assert page.cell(127, 127).text == "16383"


@EVERY_SIZE
def test_the_inspector_takes_a_line_until_a_cell_is_pointed_at(page):
    page.open("?view=layout&expression=(64,64):(64,1)")
    inspector = page.one("#inspector")
    assert inspector.size["height"] < 50
    assert "cell" in page.one("#hint").text
    page.cell(0, 0).click()
    page.wait(lambda: page.facts().get("coordinate") == "(0,0)")
    assert inspector.size["height"] > 50
    assert not page.one("#hint").is_displayed()


@pytest.mark.parametrize(("touch", "word"), [(True, "Tap"), (False, "Point")])
def test_the_hint_is_for_fingers_or_for_a_pointer(page, touch, word):
    page.driver.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": touch})
    try:
        page.open()
        assert page.one("#hint").text.startswith(word)
    finally:
        page.driver.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": False})


@EVERY_SIZE
def test_a_cell_that_the_inspector_grows_over_is_scrolled_into_view(page):
    page.open("?view=layout&expression=(64,64):(64,1)")
    bottom = page.one("#inspector").rect["y"]
    lowest = [cell for cell in page.all("td[data-column='0']") if cell.rect["y"] + cell.rect["height"] <= bottom][-1]
    lowest.click()
    page.wait(lambda: page.facts().get("coordinate"))
    page.wait(lambda: lowest.rect["y"] + lowest.rect["height"] <= page.one("#inspector").rect["y"] + 1)


@EVERY_SIZE
def test_the_legend_stands_above_the_picture(page):
    page.open("?view=layout&expression=(64,64):(64,1)&bits=16")
    legend, table = page.one("#layout-picture figcaption"), page.one("#layout-picture table")
    assert legend.rect["y"] + legend.rect["height"] <= table.rect["y"]
    assert "offset" in legend.text
    assert [key.text for key in legend.find_elements(By.CSS_SELECTOR, ".key")] == list("01234567")


def test_accumulators_come_first(page):
    page.open("?view=layout&expression=SM90_64x64x16_F16F16F16_SS")
    assert [title.text[0] for title in page.all("#layout-picture .title")] == ["C", "A", "B"]


def test_headings_are_larger_the_higher_they_are(page):
    page.open("?view=atom")
    sizes = [float(page.one(name).value_of_css_property("font-size")[:-2]) for name in ("h2", "h3")]
    assert sizes[0] > sizes[1]


@pytest.fixture
def emulated(browser):
    """Set a media feature until the test ends."""

    def emulate(name, value):
        features = [{"name": name, "value": value}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    yield emulate
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_in_the_dark_text_and_cells_can_be_read(page, emulated):
    emulated("prefers-color-scheme", "dark")
    page.open("?view=run&at=20")
    page.wait(lambda: page.all("svg.timeline text"))
    page.open("?view=layout&expression=(8,8):(8,1)")
    assert contrast(page, "body") > 7
    for cell in (".error", "#layout-picture td.c0", "#layout-picture td.c7", "#layout-picture th", "label", "#hint"):
        assert contrast(page, cell) > 4.5, cell


def contrast(page, selector):
    """Return the ratio of luminances of an element's text and what lies behind it (WCAG 2, 1.4.3)."""
    script = """
        const element = document.querySelector(arguments[0]);
        let behind = element;
        while (getComputedStyle(behind).backgroundColor === 'rgba(0, 0, 0, 0)') behind = behind.parentElement;
        const rgb = (text) => text.match(/[0-9.]+/g).slice(0, 3).map((x) => {
            const v = x / 255;
            return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
        });
        const light = ([r, g, b]) => 0.2126 * r + 0.7152 * g + 0.0722 * b;
        const text = getComputedStyle(element).color, paper = getComputedStyle(behind).backgroundColor;
        const pair = [light(rgb(text)), light(rgb(paper))];
        return (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
    """
    return page.driver.execute_script(script, selector)


SLOW = """
    const real = window.fetch;
    window.fetch = async (path, options) => {
        const answer = await real(path, options);  // is here, and comes late
        if (String(path).includes(arguments[0])) await new Promise((then) => setTimeout(then, 700));
        if (options?.signal?.aborted) throw new DOMException("aborted", "AbortError");
        return answer;
    };
"""


def test_a_late_answer_is_not_taken_for_that_of_the_next_question(page):
    page.open("?view=layout&expression=(2,3):(3,1)")
    page.driver.execute_script(SLOW, "%285%2C5%29")
    page.type("Layout expression", "(5,5):(5,1)").send_keys(Keys.ENTER)
    page.type("Layout expression", "(2,2):(2,1)").send_keys(Keys.ENTER)
    page.wait(lambda: len(page.all("#layout-picture td")) == 4)
    page.driver.execute_async_script("setTimeout(arguments[0], 1200)")
    assert len(page.all("#layout-picture td")) == 4
    assert page.idle()


def test_what_is_known_of_a_cell_is_not_that_of_one_pointed_at_before(page):
    page.open("?view=layout&expression=(4,4):(4,1)")
    page.driver.execute_script(SLOW, "index=1")
    page.cell(1, 0).click()
    page.cell(0, 1).click()
    page.wait(lambda: [step.text for step in page.all("#chain li b")][:1] == ["4"])
    page.driver.execute_async_script("setTimeout(arguments[0], 1200)")
    assert [step.text for step in page.all("#chain li b")][:1] == ["4"]


def test_shared_memory_is_not_that_of_a_layout_asked_for_before(page):
    page.open("?view=run")
    page.wait(lambda: page.all("#shared-picture td"))
    page.driver.execute_script(SLOW, "layout=%284%2C8%29")
    page.type("Through a layout", "(4,8):(8,1)").send_keys(Keys.ENTER)
    page.type("Through a layout", "(2,8):(8,1)").send_keys(Keys.ENTER)
    page.wait(lambda: len(page.all("#shared-picture td")) == 16)
    page.driver.execute_async_script("setTimeout(arguments[0], 1200)")
    assert len(page.all("#shared-picture td")) == 16


def timeline_of_ring(stages):
    """Predict a ring of bulk copies with so many stages."""
    from cutepy.frontends import load_ptx, simulate
    from cutepy.predict import Timer
    from cutepy.predict.report import timeline
    from tests.predict.kernels import ring

    timer = Timer("h200", keeps_events=True)
    with simulate(time=timer):
        load_ptx(ring(stages, 8, 16384)).launch("ring", grid=132, block=64, args=(np.zeros(132 * 8 << 14, np.uint8),))
    return timeline(timer.predictions)


@pytest.mark.dsl
@pytest.mark.skipif("CUTEPY_SCREENSHOTS" not in os.environ, reason="CUTEPY_SCREENSHOTS names no folder for screenshots")
def test_screenshots_of_the_documentation(browser, server, tmp_path):
    from cutepy.frontends import simulate
    from tests.sim.kernels.test_gemm import compiled, multiply

    with simulate(inspect=True) as run:
        multiply(*compiled(stages=2, out_dtype="float16"), 128, 128, 512)
    desk, telephone = Page(browser, server, "desk"), "telephone"
    desk.open("?view=layout&bits=16&expression=Sw<1,3,3> o 0 o (8,16):(16,1)")
    desk.point_at(desk.cell(5, 9))
    desk.wait(lambda: len(desk.all("#chain li")) == 6)
    desk.screenshot("layout")
    desk.open("?view=steps&operation=zipped_divide&left=(8,12):(12,1)&right=(4,3)")
    desk.one("#all-steps").click()
    desk.screenshot("steps")
    desk.open("?view=run")
    desk.one("#file").send_keys(str(run.save(tmp_path / "gemm.cutepy")))
    desk.wait(lambda: "run=" in desk.driver.current_url and len(desk.all("#run option")) == 2)
    desk.open(desk.driver.current_url.partition("/?")[2].join(["?", "&at=59"]))
    desk.wait(lambda: desk.all("#shared-picture td"))
    desk.screenshot("run")
    desk.open("?view=timeline")
    for stages, title in ((1, "upper"), (4, "lower")):
        file = tmp_path / f"stages-{stages}.json"
        file.write_text(json.dumps(timeline_of_ring(stages)))
        desk.one("#timeline-file").send_keys(str(file))
        desk.wait(lambda name=file.name, title=title: name in desk.one(f"#{title}-title").text and desk.idle())
    desk.screenshot("timeline")
    desk.open("?view=profile")
    desk.screenshot("flame")
    narrow = Page(browser, server, telephone)
    narrow.open("?view=atom&picture=C&n=32&tile_n=32&tile_m=64")
    narrow.point_at(narrow.cell(3, 3))
    narrow.wait(lambda: narrow.facts().get("thread"))
    narrow.screenshot("atom")
    for path in SCREENSHOTS.glob("*.png"):
        assert path.stat().st_size < 150_000


@pytest.mark.parametrize("size", SIZES)
def test_every_cell_can_be_clicked_and_a_resting_pointer_points_at_nothing(browser, server, size):
    page = Page(browser, server, size)
    page.open("?view=layout&expression=((16,8),(64,2)):((128,4096),(1,99999))")
    for i, j in ((0, 0), (127, 127), (60, 100), (5, 3), (127, 0), (126, 1), (20, 2), (1, 120)):
        page.cell(i, j).click()  # also where a label lies over it
        assert page.facts()["coordinate"].startswith("(")
        assert page.driver.execute_script("return document.activeElement.dataset.row") == str(i)
    cell = page.cell(60, 60)
    page.driver.execute_script("arguments[0].scrollIntoView({block: 'nearest', inline: 'nearest'})", cell)
    cell.click()
    seen = page.facts()["coordinate"]
    for _ in range(40):
        page.driver.switch_to.active_element.send_keys(Keys.ARROW_DOWN)
    page.wait(lambda: page.facts()["coordinate"] != seen)
    row = page.driver.execute_script("return document.activeElement.dataset.row")
    page.driver.execute_async_script("setTimeout(arguments[0], 200)")
    assert row == "100"
    assert page.facts()["coordinate"] == "((4,6),(60,0))"


def test_an_address_that_a_field_has_no_place_for_is_told(browser, server):
    page = Page(browser, server, "desk")
    page.open("?view=layout&expression=(4,8):(8,1)&bits=zz")
    assert "bits must be a whole number, got 'zz'" in page.wait(lambda: page.one("section:not([hidden]) .error").text)


def spans(page, part, name):
    """Return the drawn events of a name, in their order."""
    drawn = page.all(f"#{part}-tracks [data-span]")
    told = page.driver.execute_script("return arguments[0].map(each => each.textContent)", drawn)
    return [each for each, text in zip(drawn, told, strict=True) if text.startswith(f"{name}: ")]


@EVERY_SIZE
def test_a_measured_timeline_lies_below_a_predicted_one_on_one_axis(page):
    page.open("?view=timeline")
    assert page.one("#upper-title").text == "predicted: gemm, SM 0 (p.json)"
    assert page.one("#lower-title").text == "measured: CTA 0 of grid 9, SM 3 (m.trace)"
    (wait,), (multiply,) = spans(page, "upper", "wait: tensor cores"), spans(page, "lower", "multiply")
    # 2 to 3.5 us of the predicted one, and 1.75 to 5 of the measured one, by the same number of pixels a microsecond.
    assert wait.rect["width"] / 1.5 == pytest.approx(multiply.rect["width"] / 3.25, rel=0.02)
    assert wait.rect["x"] - multiply.rect["x"] == pytest.approx(wait.rect["width"] / 6, abs=3)
    assert page.one("#lower-tracks").rect["y"] > page.one("#upper-tracks").rect["y"] + 50
    legend = page.one("#track-legend").text
    assert all(word in legend for word in ("warp at work", "waits", "loads", "tensor cores"))


@EVERY_SIZE
def test_an_event_shows_its_line(page):
    page.open("?view=timeline")
    spans(page, "upper", "wait: copies")[0].click()
    facts = page.facts("#timeline-facts")
    assert (facts["event"], facts["of"], facts["took"]) == ("wait: copies", "CTA 0 warp 4", "1.25 us")
    assert facts["line"] == "kernel.py:10"
    assert page.one("#timeline-code mark").text.split(maxsplit=1) == ["10", "line 10 of <kernel>"]
    assert page.one("#upper-tracks .chosen")
    spans(page, "lower", "wait")[0].click()
    assert page.facts("#timeline-facts")["clocks"] == "3080"
    assert page.one("#timeline-code").text == ""


def test_pointing_at_an_event_tells_it(page):
    page.open("?view=timeline")
    page.point_at(spans(page, "upper", "load 16384 bytes")[1])
    page.wait(lambda: page.facts("#timeline-facts").get("took") == "1.20 us")


@EVERY_SIZE
def test_zooming_and_moving_through_a_timeline(page):
    page.open("?view=timeline")
    whole = page.one("#zoom-span").text
    assert whole == "0.00 us to 5.00 us"
    page.one("#zoom-in").click()
    assert page.one("#zoom-span").text == "1.25 us to 3.75 us"
    page.one("#zoom-right").click()
    assert page.one("#zoom-span").text == "1.88 us to 4.38 us"
    before = spans(page, "upper", "wait: tensor cores")[0].rect
    area = page.one("#upper-tracks svg")
    ActionChains(page.driver).move_to_element(area).click_and_hold().move_by_offset(-60, 0).release().perform()
    assert spans(page, "upper", "wait: tensor cores")[0].rect["x"] <= before["x"]
    assert float(page.one("#zoom-span").text.split()[0]) > 1.88
    assert not page.all("#upper-tracks .chosen")  # a drag chooses nothing
    page.one("#zoom-all").click()
    assert page.one("#zoom-span").text == whole
    zoomed = """const at = arguments[0].getBoundingClientRect();
        arguments[0].dispatchEvent(new WheelEvent("wheel", {deltaY: -100, ctrlKey: true, bubbles: true,
          cancelable: true, clientX: at.x + at.width, clientY: at.y + 5}));"""
    page.driver.execute_script(zoomed, page.one("#upper-tracks"))
    assert page.one("#zoom-span").text == "1.00 us to 5.00 us"


def test_a_timeline_by_the_keyboard(page):
    page.open("?view=timeline")
    page.driver.execute_script("arguments[0].focus()", page.one("#upper-tracks svg"))
    for key in (Keys.ARROW_DOWN, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT):
        page.driver.switch_to.active_element.send_keys(key)
    assert page.facts("#timeline-facts")["event"] == "wait: tensor cores"
    page.driver.switch_to.active_element.send_keys("w")
    assert page.one("#zoom-span").text != "0.00 us to 5.00 us"
    page.driver.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert page.one("#zoom-span").text == "0.00 us to 5.00 us"


def test_timelines_and_sms_are_chosen_and_found_again_by_the_address(page):
    page.open("?view=timeline")
    Select(page.labelled("SM or CTA (above)")).select_by_visible_text("SM 1: gemm")
    page.wait(lambda: page.one("#upper-title").text == "predicted: gemm, SM 1 (p.json)")
    Select(page.labelled("Below")).select_by_visible_text("none")
    page.wait(lambda: not page.all("#lower-tracks svg"))
    page.open(page.driver.current_url.partition("/?")[2].join(["?", ""]))
    assert page.one("#upper-title").text == "predicted: gemm, SM 1 (p.json)"
    assert not page.all("#lower-tracks svg")


def test_a_search_dims_other_events(page):
    page.open("?view=timeline")
    page.type("Find", "tensor")
    dim = page.all("#upper-tracks .dim")
    assert len(dim) == len(page.all("#upper-tracks [data-span]")) - 1


def test_a_file_that_is_no_timeline_is_told(page, tmp_path):
    (tmp_path / "x.json").write_text("{}")
    page.open("?view=timeline")
    page.one("#timeline-file").send_keys(str(tmp_path / "x.json"))
    assert "a timeline must be what" in page.wait(lambda: page.one("#timeline-error").text)


@EVERY_SIZE
def test_a_flame_graph_is_zoomed_into_and_out_of(page):
    page.open("?view=profile")
    boxes = {each.get_attribute("aria-label"): each for each in page.all("#flame [data-place]")}
    assert "attention: 6.0 us, 60.0%" in boxes
    assert "NVIDIA H200" in page.one("#profile-notes").text
    assert "a limit" in page.one("#profile-notes").text
    width = page.one("#flame svg").rect["width"]
    attention = boxes["attention: 6.0 us, 60.0%"].find_element(By.TAG_NAME, "rect")
    assert attention.rect["width"] == pytest.approx(0.6 * width, abs=3)
    attention.click()
    wide = next(e for e in page.all("#flame [data-place]") if e.get_attribute("aria-label").startswith("attention"))
    assert wide.find_element(By.TAG_NAME, "rect").rect["width"] == pytest.approx(width, abs=3)
    facts = page.facts("#profile-facts")
    assert (facts["scope"], facts["time"], facts["TFLOP/s"]) == ("attention", "6.0 us", "133.3")
    assert not [e for e in page.all("#flame [data-place]") if e.get_attribute("aria-label").startswith("mlp")]
    page.all("#flame [data-place]")[0].click()
    page.wait(lambda: [e for e in page.all("#flame [data-place]") if e.get_attribute("aria-label").startswith("mlp")])


def test_no_text_of_a_flame_graph_or_timeline_leaves_its_box(page):
    overflow = """return [...document.querySelectorAll(arguments[0])].filter(text => {
        const box = text.parentNode.querySelector("rect").getBoundingClientRect(), own = text.getBoundingClientRect();
        return text.textContent && own.right > box.right + 1;
    }).map(text => text.textContent)"""
    page.open("?view=profile")
    assert page.driver.execute_script(overflow, "#flame g > text") == []
    page.open("?view=timeline")
    inside = """return [...document.querySelectorAll("text.inside")].filter(text => {
        const box = text.previousElementSibling.getBoundingClientRect(), own = text.getBoundingClientRect();
        return own.right > box.right + 1;
    }).map(text => text.textContent)"""
    assert page.driver.execute_script(inside) == []
    names = """const left = document.querySelector(".tracks .lane").getBoundingClientRect().left;
        return [...document.querySelectorAll("#upper-tracks text")].filter(text =>
            text.querySelector("title") && text.getBoundingClientRect().right > left).map(text => text.textContent)"""
    assert page.driver.execute_script(names) == []
