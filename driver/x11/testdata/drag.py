"""Something to drag, in GTK 3: a slider, a text, a sheet to draw on, and a parcel to be carried to another program.

usage: drag.py source|target

What there is and what happened is said on standard output, a line of JSON each: {"places": {name: [x, y], ...}} once the
window is there, in root coordinates, then {"slider": value}, {"selected": text}, {"drawn": [[x, y], ...]} and, from the
target, {"dropped": text}.
"""

import json
import sys

import gi

gi.require_version("Gdk", "3.0")
gi.require_version("Gtk", "3.0")
from gi.repository import Gdk, GLib, Gtk


def say(**what):
    print(json.dumps(what), flush=True)


def at(widget, x, y):
    """A point of a widget in root coordinates."""
    _, left, top = Gtk.Widget.get_window(widget).get_origin()
    if widget.get_has_window():
        return [int(left + x), int(top + y)]
    area = widget.get_allocation()
    return [int(left + area.x + x), int(top + area.y + y)]


def middle(widget):
    area = widget.get_allocation()
    return at(widget, area.width / 2, area.height / 2)


def source(window):
    slider = Gtk.Scale.new_with_range(Gtk.Orientation.HORIZONTAL, 0, 100, 1)
    slider.connect("value-changed", lambda _: say(slider=slider.get_value()))
    text = Gtk.TextView()
    buffer = text.get_buffer()
    buffer.set_text("choose these words")

    def selected(*_):
        bounds = buffer.get_selection_bounds()
        say(selected=buffer.get_text(*bounds, True) if bounds else "")

    buffer.connect("mark-set", selected)
    sheet = Gtk.EventBox(height_request=150)
    sheet.add_events(Gdk.EventMask.BUTTON1_MOTION_MASK)
    drawn = []
    draw = lambda _, e: drawn.append([int(e.x_root), int(e.y_root)])

    def begin(_, e):
        buffer.place_cursor(buffer.get_start_iter())
        drawn.clear()
        draw(_, e)

    sheet.connect("button-press-event", begin)
    sheet.connect("motion-notify-event", draw)
    sheet.connect("button-release-event", lambda _, e: say(drawn=drawn))
    parcel = Gtk.EventBox(height_request=40)
    parcel.add(Gtk.Label(label="parcel"))
    parcel.drag_source_set(Gdk.ModifierType.BUTTON1_MASK, [], Gdk.DragAction.COPY)
    parcel.drag_source_add_text_targets()
    parcel.connect("drag-data-get", lambda _w, _c, data, _i, _t: data.set_text("parcel", -1))
    column = Gtk.Box(orientation=Gtk.Orientation.VERTICAL, spacing=10)
    for widget in (slider, text, sheet, parcel):
        column.pack_start(widget, False, False, 0)
    window.add(column)

    def places():
        area, (knob, end) = slider.get_range_rect(), slider.get_slider_range()
        first, last = (text.get_iter_location(i) for i in buffer.get_bounds())
        points = [text.buffer_to_window_coords(Gtk.TextWindowType.WIDGET, r.x, r.y + r.height / 2) for r in (first, last)]
        return {
            "knob": at(slider, (knob + end) / 2, area.y + area.height / 2),
            "right of the slider": at(slider, area.x + area.width + 20, area.y + area.height / 2),
            "begin of the text": at(text, *points[0]),
            "end of the text": at(text, points[1][0] + 3, points[1][1]),
            "sheet": at(sheet, 0, 0),
            "parcel": middle(parcel),
        }

    return places


def target(window):
    door = Gtk.EventBox()
    door.drag_dest_set(Gtk.DestDefaults.ALL, [], Gdk.DragAction.COPY)
    door.drag_dest_add_text_targets()
    door.connect("drag-data-received", lambda _w, _c, _x, _y, data, _i, _t: say(dropped=data.get_text()))
    window.add(door)
    return lambda: {"door": middle(door)}


window = Gtk.Window(title=sys.argv[1], default_width=400, default_height=400)
places = {"source": source, "target": target}[sys.argv[1]](window)
window.connect("destroy", Gtk.main_quit)
window.show_all()
window.move({"source": 50, "target": 700}[sys.argv[1]], 60)
GLib.timeout_add(700, lambda: say(places=places()))  # when the window manager has put it there
Gtk.main()
