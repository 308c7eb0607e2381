"""The colours of all pages and their charts, for light and dark schemes and for printing."""

from __future__ import annotations

from collections.abc import Mapping

# s0 to s7: runs. g0 to g9: groups of a map; `rest`: all further groups.
LIGHT = {
    **{"page": "#f7f7f5", "card": "#fff", "text": "#1c1e22", "muted": "#5d626b", "line": "#dfdfda", "soft": "#efefeb"},
    **{"blue": "#1f5fbf", "grey": "#8b9099", "right": "#087a57", "wrong": "#c2410c"},
    **{"s0": "#1f5fbf", "s1": "#c2410c", "s2": "#087a57", "s3": "#a8418a", "s4": "#a16a00", "s5": "#1588b8"},
    **{"s6": "#6c4fc4", "s7": "#4b5058"},
    **{"g0": "#1f5fbf", "g1": "#d55e00", "g2": "#009e73", "g3": "#cc5fa0", "g4": "#c69200", "g5": "#45a7dc"},
    **{"g6": "#7d55c7", "g7": "#8a3b12", "g8": "#2f3338", "g9": "#7f9a1a", "rest": "#b9bcc1"},
}
DARK = {
    **{"page": "#121417", "card": "#1a1d21", "text": "#e8e9eb", "muted": "#a2a8b1", "line": "#31353b"},
    **{"soft": "#23272c", "blue": "#7fb0ff", "grey": "#868d97", "right": "#3ecf9c", "wrong": "#ff8f5e"},
    **{"s0": "#7fb0ff", "s1": "#ff8f5e", "s2": "#3ecf9c", "s3": "#ea8fce", "s4": "#e9b949", "s5": "#6fd0f5"},
    **{"s6": "#b49bff", "s7": "#c3c8cf"},
    **{"g0": "#6fa5ff", "g1": "#ff8a50", "g2": "#35c896", "g3": "#ea8fce", "g4": "#e9b949", "g5": "#7fd3f7"},
    **{"g6": "#b18cff", "g7": "#d08b62", "g8": "#eef0f2", "g9": "#b7d04a", "rest": "#4a4f57"},
}
PAPER = {**LIGHT, "page": "#fff", "text": "#000", "muted": "#444", "line": "#ccc", "soft": "#eee", "grey": "#777"}


def rules() -> str:
    """The colours as custom properties of a style sheet, for light and dark schemes and for printing."""

    def root(colours: Mapping[str, str]) -> str:
        return f":root{{{';'.join(f'--{name}:{colour}' for name, colour in colours.items())}}}"

    return f"{root(LIGHT)}\n@media (prefers-color-scheme:dark){{{root(DARK)}}}\n@media print{{{root(PAPER)}}}\n"
