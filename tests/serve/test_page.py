"""The page in a real browser: Debian's chromium and chromium-driver, and the selenium package."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

ARGUMENTS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)
TEXT = "Good morning. The red house is old."


@contextmanager
def browser(width: int) -> Iterator[object]:
    webdriver = pytest.importorskip("selenium.webdriver")
    found = {name: shutil.which(name) for name in ("chromium", "chromedriver")}
    if not all(found.values()):
        pytest.skip("needs chromium and chromedriver")
    options = webdriver.ChromeOptions()
    options.binary_location = found["chromium"]
    for argument in (*ARGUMENTS.split(), f"--window-size={width},900"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(service=webdriver.ChromeService(found["chromedriver"]), options=options)
    try:
        yield driver
    finally:
        driver.quit()


@pytest.mark.slow
@pytest.mark.parametrize("width", [1200, 500])
def test_a_person_translates_swaps_hovers_and_compares(asked, width):
    with browser(width) as driver:
        from selenium.webdriver.common.action_chains import ActionChains
        from selenium.webdriver.support.ui import WebDriverWait

        def find(selector):
            return driver.find_element("css selector", selector)

        def wait(until):
            return WebDriverWait(driver, 20, ignored_exceptions=(Exception,)).until(lambda _: until())

        driver.get(f"http://127.0.0.1:{asked.port}/")
        wait(lambda: find("#target option[value=pt]"))
        find("#text").send_keys(TEXT)
        wait(lambda: find("#output").text == "Bom dia. A casa é antiga." and find("#status").text == "read as English")
        assert len(driver.find_elements("css selector", "#alternatives p")) == 2
        word = next(one for one in driver.find_elements("css selector", "#output .word") if one.text == "casa")
        ActionChains(driver).move_to_element(word).perform()
        assert wait(lambda: find("#linked-words mark").text) == "house"
        find("#swap").click()
        wait(lambda: find("#output").text == "Good morning. The house is old.")
        assert find("#text").get_attribute("value") == "Bom dia. A casa é antiga."
        find("#tab-compare").click()
        find("#run").click()
        wait(lambda: len(driver.find_elements("css selector", "#similarities td")) == 10)
        assert not find("#translate").is_displayed() and driver.get_log("browser") == []
        messages = [json.loads(entry["message"])["message"]["params"] for entry in driver.get_log("performance")]
        urls = {message.get("request", {}).get("url") for message in messages} - {None}
        assert urls and all(url.startswith((f"http://127.0.0.1:{asked.port}/", "data:")) for url in urls)
