"""Explanations as HTML: one self-contained page, with SVG pictures to hover over."""

from __future__ import annotations

from typing import Any, NamedTuple

from cutepy.anatomy.model import Findings, Kernel, Region
from cutepy.anatomy.sections import sections
from cutepy.anatomy.smem import UNUSED
from cutepy.extras import require
from cutepy.layouts.render import render_svg
from cutepy.layouts.render.palette import FILLS


class Bar(NamedTuple):
    """Region in the picture of shared memory, in percent of its width."""

    left: float
    width: float
    colour: str
    title: str


def page(findings: Findings) -> str:
    """Return an explanation as an HTML document.

    Raises
    ------
    ImportError
        If jinja2 is not installed.
    """
    return _rendered("page.html.jinja", findings)


def fragment(findings: Findings) -> str:
    """Return an explanation as an HTML fragment with its style, for a notebook."""
    return _rendered("fragment.html.jinja", findings)


def _rendered(template: str, findings: Findings) -> str:
    require("the page of cutepy.explain", "jinja2")
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("cutepy.anatomy"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=True,
    )
    kernels: list[dict[str, Any]] = [
        {"kernel": kernel, "sections": sections(kernel), "bars": bars(kernel)} for kernel in findings.kernels
    ]
    return environment.get_template(template).render(findings=findings, kernels=kernels, svg=render_svg)


def bars(kernel: Kernel) -> list[Bar]:
    """Lay the regions of shared memory side by side; thin ones are widened, so that they can be pointed at."""
    end = max((start + region.bytes for region in kernel.regions for start in _starts(region)), default=0)
    regions = [region for region in kernel.regions if region.what != UNUSED]
    return [
        Bar(
            round(100 * start / end, 3),
            round(max(100 * region.bytes / end, 0.3), 3),
            FILLS[number % len(FILLS)],
            f"{start:#x}-{start + region.bytes - 1:#x}, {region.bytes} bytes: {region.what}",
        )
        for number, region in enumerate(regions)
        for start in _starts(region)
    ]


def _starts(region: Region) -> tuple[int, ...]:
    return region.starts or (region.start,)
