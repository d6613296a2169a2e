"""Shows buttons in one place after the other, each until it is pressed, in the units of a toolkit that scales.

Writes "ready" when the first one is there, and for each press of the mouse its place in those units and who got it:
"button0" and so on, or "beside".
"""

import sys

import gi

gi.require_version("Gdk", "3.0")
gi.require_version("Gtk", "3.0")
from gi.repository import Gdk, Gtk

width, height, side = map(int, sys.argv[1:4])
places = [tuple(map(int, place.split(","))) for place in sys.argv[4:]]

style = Gtk.CssProvider()
style.load_from_data(b"#target { background: #ff00ff; }")
Gtk.StyleContext.add_provider_for_screen(Gdk.Screen.get_default(), style, Gtk.STYLE_PROVIDER_PRIORITY_USER)

window = Gtk.Window(type=Gtk.WindowType.POPUP, default_width=width, default_height=height)
fixed = Gtk.Fixed()
target = Gtk.EventBox(name="target", width_request=side, height_request=side)
fixed.put(target, *places[0])
window.add(fixed)
window.add_events(Gdk.EventMask.BUTTON_PRESS_MASK)
shown = 0


def say(*words):
    print(*words, flush=True)


def pressed(widget, event):
    global shown
    if event.type != Gdk.EventType.BUTTON_PRESS:  # GDK takes presses of a button that moves for double clicks
        return True
    say(event.x_root, event.y_root, f"button{shown}" if widget is target else "beside")
    if widget is target:
        shown = (shown + 1) % len(places)
        fixed.move(target, *places[shown])
    return True


def painted(clock):
    clock.disconnect(handler)
    say("ready")


target.connect("button-press-event", pressed)
window.connect("button-press-event", pressed)
window.connect("destroy", Gtk.main_quit)
window.realize()
handler = window.get_frame_clock().connect("after-paint", painted)
window.show_all()
Gtk.main()
