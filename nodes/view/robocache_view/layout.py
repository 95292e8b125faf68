"""Layout of the Rerun viewer: which views there are, and where.

A view is added when its entity is first drawn, and stays: the layout is sent again only for new views.
"""

from __future__ import annotations

from typing import Any

import rerun as rr
import rerun.blueprint as rrb

# Largest number of values that are drawn as lines. More values are bars of a chart, as lines make the viewer slow.
MAX_LINES = 256
# Largest number of lines with a legend, as a longer legend hides the lines.
MAX_LEGEND = 8
# Largest number of plots below each other; more plots form a grid.
_MAX_ROWS = 6
# Largest number of views that can be made out. Entities without a view can be opened in the viewer's list of entities.
_MAX_VIEWS = 100


class Layout:
    """Views of the viewer: one for each frame, image and modality, one for all ages, one for all states, one for all text."""

    def __init__(self) -> None:
        self._views: dict[tuple[str, str], rrb.View] = {}
        self._is_new = False

    def add(self, path: tuple[str, ...], entity: str, lines: int) -> None:
        """Adds a view for an entity, unless the view exists or there are `_MAX_VIEWS` views. The first part of `path` selects
        the kind of view; `lines` is the number of values that the entity plots."""
        kind, title = path[0], " ".join(path[1:])
        match kind:
            case "values" | "image":
                origin = entity
            case "space":
                origin = rr.new_entity_path(list(path[:2]))
            case _:
                origin = f"/{kind}"
        if (kind, origin) in self._views or len(self._views) == _MAX_VIEWS:
            return
        self._is_new = True
        view: rrb.View
        match kind:
            case "values" if lines > MAX_LINES:
                view = rrb.BarChartView(origin=origin, name=title)
            case "values":
                legend = rrb.PlotLegend(visible=lines <= MAX_LEGEND)
                view = rrb.TimeSeriesView(origin=origin, name=title, plot_legend=legend)
            case "image":
                view = rrb.Spatial2DView(origin=origin, name=title)
            case "space":
                view = rrb.Spatial3DView(origin=origin, name=path[1])
            case "age_ms":
                view = rrb.TimeSeriesView(origin=origin, name="age, ms")
            case "log":
                view = rrb.TextLogView(origin=origin, name="log")
            case _:
                view = rrb.StateTimelineView(origin=origin, name=kind)
        self._views[kind, origin] = view

    def blueprint(self, timeline: str) -> rrb.Blueprint | None:
        """Returns the layout of all views; None if no view is new since the last call."""
        if not self._is_new:
            return None
        self._is_new = False
        values, spaces, images = self._of("values"), self._of("space"), self._of("image")
        world = [rrb.Tabs(*spaces)] if len(spaces) > 1 else spaces
        world += [rrb.Grid(*images)] if images else []
        lines = [rrb.Grid(*values)] if len(values) > _MAX_ROWS else values
        lines += self._of("age_ms")
        # States get more height, as each takes a lane of its own.
        left = [(view, 2) for view in world] + [(view, 1) for view in self._of("diagnostics") + self._of("log")]
        right = [(view, 1) for view in lines] + [(view, 2) for view in self._of("valid")]
        columns = [rrb.Vertical(*(view for view, _ in c), row_shares=[n for _, n in c]) for c in (left, right) if c]
        return rrb.Blueprint(
            rrb.Horizontal(*columns),
            rrb.TimePanel(timeline=timeline, state="collapsed"),
            rrb.BlueprintPanel(state="collapsed"),
            rrb.SelectionPanel(state="collapsed"),
        )

    def _of(self, kind: str) -> list[Any]:
        return [view for (other, _), view in self._views.items() if other == kind]
