"""The HTML page in a browser: pointing at a cell tells its facts and outlines its thread's."""

import re
import shutil
import subprocess

import pytest

from cutepy.layouts import Layout, save

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
POINT = """<script>
const cell = document.querySelectorAll("td")[{cell}];
cell.dispatchEvent(new MouseEvent("mouseover", {{bubbles: true}}));
document.body.dataset.said = document.getElementById("facts").textContent;
document.body.dataset.lit = [...document.querySelectorAll("td")].map(x => +x.classList.contains("same")).join("");
document.body.dataset.loaded = performance.getEntriesByType("resource").length;
</script></body>"""


def pointed_at(page, cell, folder):
    """The text of the page, and the cells that it outlines, with the pointer on a cell."""
    text = page.read_text(encoding="utf-8").replace("</body>", POINT.format(cell=cell))
    page.write_text(text, encoding="utf-8")
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}", "--dump-dom"]
    done = subprocess.run([*command, page.as_uri()], capture_output=True, text=True, timeout=60)
    return {name: re.search(rf'data-{name}="([^"]*)"', done.stdout)[1] for name in ("said", "lit", "loaded")}


@pytest.mark.skipif(BROWSER is None, reason="needs chromium")
@pytest.mark.parametrize(
    ("options", "cell", "said", "lit"),
    [
        ({"tv": True, "tile": (2, 4)}, 5, "coordinate (1,1) · index 3 · offset 3 · thread 1 · value 1", "00001111"),
        ({"bits": 64}, 3, "coordinate (1,1) · index 3 · offset 5 · byte 40 · bank 10", "0001"),
    ],
)
def test_pointing_at_a_cell_tells_its_facts(tmp_path, options, cell, said, lit):
    layout = Layout((2, 4), (1, 2)) if "tv" in options else Layout((2, 2), (1, 4))
    save(layout, tmp_path / "page.html", **options)
    assert pointed_at(tmp_path / "page.html", cell, tmp_path / "profile") == {"said": said, "lit": lit, "loaded": "0"}
