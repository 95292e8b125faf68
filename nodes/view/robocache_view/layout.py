"""The views of what is drawn."""

from __future__ import annotations

from typing import Any

import rerun as rr
import rerun.blueprint as rrb

# Past it, values are the bars of a chart: lines make the viewer slow.
MAX_LINES = 256
# Above it, a legend hides the lines.
_MAX_LEGEND = 8
# Above it, lines go beside each other.
_MAX_ROWS = 6


class Layout:
    """A view for each frame, image and modality; one for all ages, all states, and all text."""

    def __init__(self) -> None:
        self._views: dict[tuple[str, str], Any] = {}
        self._is_new = False

    def add(self, path: tuple[str, ...], entity: str, lines: int) -> None:
        """Makes room for an entity. The kind, the first part of its path, says which view it belongs to; `lines` is how
        many values it has."""
        kind = path[0]
        match kind:
            case "values" | "image":
                key = (kind, entity)
            case "space":
                key = (kind, rr.new_entity_path(list(path[:2])))
            case _:
                key = (kind, f"/{kind}")
        if key in self._views:
            return
        self._is_new = True
        title = " ".join(path[1:])
        match kind:
            case "values" if lines > MAX_LINES:
                view = rrb.BarChartView(origin=entity, name=title)
            case "values":
                legend = rrb.PlotLegend(visible=lines <= _MAX_LEGEND)
                view = rrb.TimeSeriesView(origin=entity, name=title, plot_legend=legend)
            case "image":
                view = rrb.Spatial2DView(origin=entity, name=title)
            case "space":
                view = rrb.Spatial3DView(origin=key[1], name=path[1])
            case "age_ms":
                view = rrb.TimeSeriesView(origin=key[1], name="age, ms")
            case "log":
                view = rrb.TextLogView(origin=key[1], name="log")
            case _:
                view = rrb.StateTimelineView(origin=key[1], name=kind)
        self._views[key] = view

    def blueprint(self, timeline: str) -> rrb.Blueprint | None:
        """All views, where there are new ones since it was asked for last."""
        if not self._is_new:
            return None
        self._is_new = False
        of = lambda *kinds: [view for (kind, _), view in self._views.items() if kind in kinds]  # noqa: E731
        lines = of("values")
        if len(lines) > _MAX_ROWS:
            lines = [rrb.Grid(*lines)]
        # A state takes a lane, a line none.
        right, lanes = [*lines, *of("age_ms")], of("valid", "diagnostics")
        spaces, images, texts = of("space"), of("image"), of("log")
        left = [rrb.Tabs(*spaces) if len(spaces) > 1 else spaces, [rrb.Grid(*images)] if images else [], texts]
        left = [view for part in left for view in (part if isinstance(part, list) else [part])]
        shares = [1] * len(right) + [2] * len(lanes)
        columns = [column for part, column in ((left, rrb.Vertical(*left)), (shares, rrb.Vertical(*right, *lanes, row_shares=shares))) if part]
        return rrb.Blueprint(
            rrb.Horizontal(*columns),
            rrb.TimePanel(timeline=timeline, state="collapsed"),
            rrb.BlueprintPanel(state="collapsed"),
            rrb.SelectionPanel(state="collapsed"),
        )
