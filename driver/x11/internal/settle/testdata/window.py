"""A GTK window in the corner of the screen: a button that changes its label, one that slides in a text for 700ms, and an
entry, which has a caret that blinks. Where they are is fixed, so that nobody has to ask."""

import gi

gi.require_version("Gtk", "3.0")
from gi.repository import Gtk

window = Gtk.Window(title="window", decorated=False, default_width=600, default_height=400)
fixed = Gtk.Fixed()
window.add(fixed)

press = Gtk.Button(label="before", width_request=300, height_request=100)
press.connect("clicked", lambda _: press.set_label("after"))
fixed.put(press, 0, 0)

slide = Gtk.Button(label="slide", width_request=300, height_request=100)
text = Gtk.Revealer(transition_duration=700)
text.add(Gtk.Label(label="some text\n" * 9))
slide.connect("clicked", lambda _: text.set_reveal_child(True))
fixed.put(slide, 300, 0)
fixed.put(text, 0, 100)

entry = Gtk.Entry(width_request=300)
fixed.put(entry, 300, 200)

window.connect("destroy", Gtk.main_quit)
window.move(0, 0)
window.show_all()
press.grab_focus()
Gtk.main()
