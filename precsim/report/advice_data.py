"""Advice as plain JSON values."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from precsim.advice import Advice, Option, Risk

__all__ = ["SCHEMA", "advice_to_dict"]

SCHEMA = "precsim.advise/1"
"""Name and version of the JSON layout; a change that readers could notice gets a new number."""


def advice_to_dict(advice: Advice) -> dict[str, Any]:
    """Everything that was advised, with its counts."""
    return {
        "schema": SCHEMA,
        "steps": advice.steps,
        "max_flushed": float(advice.analysis.max_flushed),
        "refused": list(advice.refused),
        "options": [_option(option) for option in advice.options],
        "windows": [
            {
                "step": item.step,
                "format": item.format.name,
                "low": item.window.low,
                "high": item.window.high,
                "usable": bool(item.window),
                "largest": item.largest,
                "most_flushed": item.most_flushed,
            }
            for item in advice.windows
        ],
        "movement": list(advice.movement),
        "set_apart": [asdict(item) for item in advice.apart],
        "notes": list(advice.notes),
        "evidence": list(advice.evidence),
    }


def _option(option: Option) -> dict[str, Any]:
    return {
        "title": option.title,
        "format": option.format.name,
        "kind": option.kind,
        "verdict": option.verdict,
        "settings": dict(option.settings),
        "outcomes": None if option.outcomes is None else asdict(option.outcomes),
        "sqnr_db": option.sqnr_db,
        "risk": None if option.risk is None else _risk(option.risk),
        "why": list(option.why),
        "how_sure": list(option.sure),
        "what_would_change_it": list(option.changes),
        "tensors": [
            {
                "name": row.name,
                "scale_exponent_low": row.low,
                "scale_exponent_high": row.high,
                "outcomes": asdict(row.outcomes),
                "sqnr_db": row.sqnr_db,
                "serves": row.serves,
            }
            for row in option.tensors
        ],
        "keep_in_16_bits": list(option.keep),
    }


def _risk(risk: Risk) -> dict[str, Any]:
    return asdict(risk)
