"""One self-contained HTML page: histograms with a slider for the loss scale, S-curves, tensors, steps, evidence."""

from precsim.report.page.page import render_page

__all__ = ["render_page"]
