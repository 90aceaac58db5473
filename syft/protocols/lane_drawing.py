"""The drawing of a protocol: a lane for each role, time downwards, and an arrow for each send.

It is SVG, which notebooks and browsers show.  Every text is escaped: names of roles and operations
may come from others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from syft.notebook_html import escaped
from syft.protocols.tapes import CommunicationAction, ComputationAction, Role

_LANE: Final = 190
_ROW: Final = 17
_TOP: Final = 46
_SIDE: Final = 12
_LONGEST: Final = 22
"""The most characters of the name of an operation, which are wide."""
_MOST_SHOWN: Final = 6
"""The most operations of one block that are named."""


@dataclass(slots=True)
class _Lane:
    """One role: how far down its lane is filled, and the operations of the block that is open."""

    role: Role
    x: int
    y: int = _TOP
    texts: list[str] = field(default_factory=list)
    parts: list[str] = field(default_factory=list)

    def close(self) -> None:
        """Draw the block that is open."""
        if not self.texts:
            return
        shown = self.texts
        if len(shown) > _MOST_SHOWN:
            left = len(shown) - _MOST_SHOWN + 1
            shown = [*shown[: _MOST_SHOWN - 1], f"… {left} more"]
        height = _ROW * len(shown) + 8
        self.parts.append(
            f'<rect x="{self.x + 8}" y="{self.y}" width="{_LANE - 16}" height="{height}" rx="4" '
            'fill="#eef4fb" stroke="#7a9cc6"/>'
        )
        for number, text in enumerate(shown):
            self.parts.append(_text(self.x + 16, self.y + _ROW * (number + 1), text))
        self.y += height + 8
        self.texts = []

    def note(self, text: str) -> None:
        """Write a line between blocks."""
        self.close()
        self.y += _ROW
        self.parts.append(_text(self.x + 16, self.y - 4, text, 'font-style="italic"'))


def _text(x: int, y: int, text: str, more: str = "") -> str:
    return f'<text x="{x}" y="{y}" font-size="12" {more}>{escaped(text, 26)}</text>'


def draw(name: str, roles: Sequence[Role]) -> str:
    """The drawing of the roles of a protocol, as SVG.

    >>> draw("<foo>", []).startswith("<svg"), "<foo>" in draw("<foo>", [])
    (True, False)
    """
    lanes = {role.name: _Lane(role, _SIDE + _LANE * number) for number, role in enumerate(roles)}
    arrows = _filled(lanes)
    parts = [part for lane in lanes.values() for part in lane.parts]
    height = max([lane.y for lane in lanes.values()], default=_TOP) + 14
    width = 2 * _SIDE + _LANE * max(len(lanes), 1)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" role="img">'
        f"<title>{escaped(name)}</title>"
        '<defs><marker id="syft-head" markerWidth="8" markerHeight="8" refX="7" refY="4" '
        'orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="#b4552d"/></marker></defs>'
        f'<rect width="{width}" height="{height}" fill="white"/>'
        f"{''.join(_head(lane, height) for lane in lanes.values())}"
        f"{''.join(parts)}{''.join(arrows)}</svg>"
    )


def _filled(lanes: dict[str, _Lane]) -> list[str]:
    """Fill the lanes with what their roles take, do and keep; returns the arrows between them."""
    arrows: list[str] = []
    for lane in lanes.values():
        for given, kind in lane.role.inputs.items():
            lane.note(f"▸ {given}: {kind}")
    steps = [(one.number, lane, one) for lane in lanes.values() for one in lane.role.actions]
    for _, lane, action in sorted(steps, key=lambda step: step[0]):
        if type(action) is CommunicationAction:
            arrows.append(_arrow(list(lanes.values()), lane, lanes[action.target], action.what))
        elif type(action) is ComputationAction:
            lane.texts.append(_short(action.op))
    for lane in lanes.values():
        lane.close()
        for kept, kind in lane.role.outputs.items():
            lane.note(f"◂ {kept}: {kind}")
    return arrows


def _short(op: str) -> str:
    """How the drawing calls an operation.

    >>> _short("torch.nn.functional.relu"), _short("syft.ops.secret_integers.split")
    ('nn.functional.relu', 'split')
    """
    name = op.rpartition(".")[2] if op.startswith("syft.") else op.removeprefix("torch.")
    return name if len(name) < _LONGEST else f"{name[:_LONGEST]}…"


def _head(lane: _Lane, height: int) -> str:
    """The name of a role, and the line of its lane."""
    middle = lane.x + _LANE // 2
    return (
        f'<line x1="{middle}" y1="32" x2="{middle}" y2="{height - 8}" stroke="#d5d5d5"/>'
        f'<text x="{middle}" y="22" font-size="14" font-weight="bold" text-anchor="middle">'
        f"{escaped(lane.role.name, 24)}</text>"
    )


def _arrow(lanes: Sequence[_Lane], origin: _Lane, target: _Lane, what: str) -> str:
    """An arrow from lane to lane, below what these two and those between have done so far."""
    left, right = sorted((origin.x, target.x))
    crossed = [lane for lane in lanes if left <= lane.x <= right]
    for lane in crossed:
        lane.close()
    y = max(lane.y for lane in crossed) + 12
    for lane in crossed:
        lane.y = y + 12
    start, end = origin.x + _LANE // 2, target.x + _LANE // 2
    return (
        f'<line x1="{start}" y1="{y}" x2="{end}" y2="{y}" stroke="#b4552d" stroke-width="1.5" '
        f'marker-end="url(#syft-head)"/><text x="{(start + end) // 2}" y="{y - 4}" font-size="11" '
        f'text-anchor="middle" fill="#b4552d">{escaped(what, 22)}</text>'
    )
