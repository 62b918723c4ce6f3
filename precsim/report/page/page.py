"""`render_page`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from precsim import __version__
from precsim.analyze import Analysis
from precsim.errors import InputError
from precsim.report.page.charts import chart_specs
from precsim.report.page.data import page_data

__all__ = ["render_page"]


def render_page(
    analysis: Analysis,
    *,
    title: str,
    evidence: Sequence[str] = (),
    advice: Sequence[tuple[str, Sequence[str]]] = (),
    marks: Mapping[str, int] | None = None,
) -> str:
    """An analysis as one HTML page that loads nothing from anywhere.

    Parameters
    ----------
    analysis : Analysis
    title : str
        What was recorded.
    evidence : sequence of str
        What was seen and what was not; else it is read off the analysis.
    advice : sequence of (str, sequence of str)
        Headings with lines, shown first.
    marks : mapping of str to int
        Exponents of advised scales by format name.

    Returns
    -------
    str

    Raises
    ------
    InputError
        If the packages of ``precsim[report]`` are not installed.
    """
    environment = _environment()
    data = page_data(analysis, marks or {})
    return str(
        environment.get_template("page.html").render(
            title=title,
            version=__version__,
            evidence=list(evidence) or _evidence(analysis),
            advice=[(heading, list(lines)) for heading, lines in advice],
            css=_safe(_text("page.css")),
            script=_safe(_text("page.js")),
            bundle=_safe(_bundle()),
            data=_json(data),
            specs=_json(chart_specs()),
            tensors=len(data["tensors"]),
        )
    )


def _evidence(analysis: Analysis) -> list[str]:
    from precsim.wording import counted

    seen = analysis.evidence
    return [
        f"{counted(seen.tensors, 'tensor')} in {counted(seen.files, 'file')}, {counted(seen.elements, 'element')}: "
        "counts are exact for these; nothing is said of other steps."
    ]


def _environment() -> Any:
    try:
        import altair  # noqa: F401 (is it there?)
        import jinja2
        import markupsafe
        import vl_convert  # noqa: F401
    except ImportError as error:
        raise InputError(f"a page needs {error.name}: pip install 'precsim[report]'") from error
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_text),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    environment.filters["raw"] = markupsafe.Markup
    return environment


def _text(name: str) -> str:
    return (files(__package__) / name).read_text("utf-8")


@cache
def _bundle() -> str:
    """Vega, Vega-Lite and vega-embed in one script."""
    import vl_convert

    return str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))


def _safe(script: str) -> str:
    """A script or style that can't end the element that it stands in, nor hide its end in a comment."""
    return re.sub(r"<(?=/(script|style)|!--)", r"<\\", script, flags=re.IGNORECASE)


def _json(value: Any) -> str:
    """JSON that may stand in a script element: no name in it can end the element or begin a comment."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
