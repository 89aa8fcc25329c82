"""Readers of drawn layouts, one for each format, that share no code with the renderers.

Each gives a grid as {(row label, column label): text}, and what else the format says.
"""

import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from itertools import pairwise

SVG = "{http://www.w3.org/2000/svg}"


def read_text(text):
    """Cells of the tables in a text, by labels."""
    cells = {}
    heads, previous = [], ""
    for line in text.splitlines():
        rule = re.fullmatch(r" *\+[-=+]*\+", line)
        if rule and not re.search(r"\|", previous):
            heads = previous.split() if re.fullmatch(r"[\d,. ]*", previous) else [""]
            heads = heads or [""]
        if "|" in line:
            label, _, rest = line.partition("|")
            body, _, _ = rest.rpartition("|")
            texts = body.replace("|", " ").split()
            assert len(texts) == len(heads), (heads, texts)
            for head, cell in zip(heads, texts, strict=True):
                assert (label.strip(), head) not in cells
                cells[label.strip(), head] = cell
        previous = line
    return cells


class SvgGrid:
    """The cells of an SVG: texts, fills, facts and places."""

    def __init__(self, text):
        self.root = ElementTree.fromstring(text)
        assert self.root.tag == SVG + "svg"
        self.title = self.root.find(SVG + "title").text
        self.description = self.root.find(SVG + "desc").text
        self.cells, self.fills, self.facts, self.boxes, self.edges = {}, {}, {}, {}, {}
        for element in self.root.iter(SVG + "g"):
            if "data-row" not in element.attrib:
                continue
            place = int(element.get("data-row")), int(element.get("data-column"))
            rect, written = element.find(SVG + "rect"), element.find(SVG + "text")
            self.boxes[place] = tuple(int(rect.get(name)) for name in ("x", "y", "width", "height"))
            self.fills[place] = rect.get("fill")
            self.edges[place] = rect.get("stroke")
            pieces = [span.text or "" for span in written.findall(SVG + "tspan")] or [written.text or ""]
            self.cells[place] = "\n".join(pieces)
            self.facts[place] = facts(element.find(SVG + "title").text or "")

    def check_places(self):
        """Cells stand in rows and columns, within the picture, and none upon another."""
        width, height = int(self.root.get("width")), int(self.root.get("height"))
        lefts, tops = {}, {}
        for (i, j), (x, y, w, h) in self.boxes.items():
            assert 0 <= x
            assert x + w <= width
            assert 0 <= y
            assert y + h <= height
            assert lefts.setdefault(j, (x, w)) == (x, w)
            assert tops.setdefault(i, (y, h)) == (y, h)
        for starts in (lefts, tops):
            order = [starts[position] for position in sorted(starts)]
            for (start, extent), (following, _) in pairwise(order):
                assert start + extent <= following


class HtmlGrid(HTMLParser):
    """The tables of an HTML fragment or page."""

    VOID = ("br", "meta")

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.tables, self.links = [], [], []
        self.attributes, self.texts = {}, {}
        self.heads, self.captions = [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        known = dict(attributes)
        self.links += [known[name] for name in ("src", "href") if name in known]
        if tag == "br":
            self.handle_data("\n")
        if tag in self.VOID:
            return
        self.open.append(tag)
        self.current, self.known = "", known
        if tag == "table":
            self.tables.append([])
            self.heads.append([])
        elif tag == "tr":
            self.row = []
        elif tag == "td":
            self.cell = known

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
        if tag == "td":
            self.row.append((self.current, self.cell))
        elif tag == "th" and "tbody" in self.open:
            self.row.append((self.current, None))
        elif tag == "th" and "scope" in self.known:
            self.heads[-1].append(self.current)
        elif tag == "tr" and "tbody" in self.open:
            self.tables[-1].append(self.row)
        elif tag == "figcaption":
            self.captions.append(self.current)

    def handle_data(self, data):
        if self.open:
            self.current += data

    def cells(self, table=0):
        """Cells by labels."""
        found = {}
        for (label, none), *row in self.tables[table]:
            assert none is None
            for head, (text, attributes) in zip(self.heads[table][1:], row, strict=True):
                found[label, head] = text, facts(attributes["title"]), attributes
        return found


def facts(text):
    """The facts of a tooltip: {name: text}; of several threads, the first."""
    found = {}
    for line in text.split("\n"):
        name, _, told = line.partition(" ")
        found.setdefault(name, told)
    return found


def read_latex(text):
    """Cells of the pictures in a document, a list of {(row, column): (text, style)}, and their labels."""
    assert text.startswith(r"\documentclass")
    assert text.rstrip().endswith(r"\end{document}")
    found = []
    for body in re.findall(r"\\begin\{tikzpicture\}(.*?)\\end\{tikzpicture\}", text, re.DOTALL):
        cells, labels = {}, {}
        for style, row, column, content in re.findall(r"\\node\[(.*?)\] at \((-?\d+),(-?\d+)\) \{(.*)\};", body):
            place = int(row), int(column)
            if style.startswith("cell"):
                cells[place] = "\n".join(map(unescaped, content.split(r"\\"))), style
            elif style == "axis":
                labels[place] = unescaped(content)
        found.append((cells, labels))
    return found


def unescaped(latex):
    """LaTeX's text as plain text, character by character."""
    named = {"textbackslash": "\\", "textasciitilde": "~", "textasciicircum": "^", "textless": "<"}
    named |= {"textgreater": ">", "textbar": "|", "textquotedbl": '"', "textasciigrave": "`"}
    plain, at = "", 0
    while at < len(latex):
        if latex[at] != "\\":
            assert latex[at] not in "&%$#_{}~^"
            plain, at = plain + latex[at], at + 1
        elif name := re.match(r"\\([a-z]+)\{\}", latex[at:]):
            plain, at = plain + named[name[1]], at + len(name[0])
        else:
            plain, at = plain + latex[at + 1], at + 2
    return plain
