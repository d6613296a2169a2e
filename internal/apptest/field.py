"""A text field that has the focus, and answers questions about itself.

usage: field.py entry|area|qt|tkentry|tkarea|xlib|tty PORT

It connects to PORT on loopback. A question is a line, and so is its answer, in JSON:

    focused     whether keys arrive in the field
    text        what the field holds
    take        what the field holds; it is empty afterwards

It ends when the connection does.
"""

import json
import os
import select
import socket
import sys


class Asker:
    """The one who asks, at the other end of a connection."""

    def __init__(self, port, focused, text, clear):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.focused, self.text, self.clear = focused, text, clear
        self.rest = b""

    def serve(self):
        """Answers what has been asked, and returns False when nobody asks any more."""
        data = self.socket.recv(4096)
        *questions, self.rest = (self.rest + data).split(b"\n")
        for question in questions:
            answer = self.focused() if question == b"focused" else self.text()
            self.socket.sendall(json.dumps(answer).encode() + b"\n")
            if question == b"take":
                self.clear()
        return bool(data)


def gtk(port, area):
    import gi

    gi.require_version("Gtk", "3.0")
    from gi.repository import GLib, Gtk

    window = Gtk.Window(title="field", default_width=500, default_height=300)
    if area:
        field = Gtk.TextView(accepts_tab=True)
        buffer = field.get_buffer()
        text = lambda: buffer.get_text(buffer.get_start_iter(), buffer.get_end_iter(), True)
        clear = lambda: buffer.set_text("")
    else:
        field = Gtk.Entry()
        text, clear = field.get_text, lambda: field.set_text("")
    window.add(field)
    window.connect("destroy", Gtk.main_quit)
    window.show_all()
    asker = Asker(port, lambda: window.is_active() and field.has_focus(), text, clear)

    def asked(*_):
        if not asker.serve():
            Gtk.main_quit()
            return False
        return True

    # After the events that have arrived, which are more urgent.
    GLib.io_add_watch(asker.socket, GLib.PRIORITY_DEFAULT_IDLE, GLib.IO_IN | GLib.IO_HUP, asked)
    Gtk.main()


def qt(port):
    import signal

    from PyQt5 import QtCore, QtWidgets

    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Qt does not look at Python's
    application = QtWidgets.QApplication(["field"])
    field = QtWidgets.QPlainTextEdit()
    # Unlike toPlainText this keeps spaces that do not break; a line ends in a separator of paragraphs.
    text = lambda: field.document().toRawText().replace("\u2029", "\n")
    field.setWindowTitle("field")
    field.resize(500, 300)
    field.show()
    asker = Asker(port, lambda: field.isActiveWindow() and field.hasFocus(), text, field.clear)
    notifier = QtCore.QSocketNotifier(asker.socket.fileno(), QtCore.QSocketNotifier.Read)
    notifier.activated.connect(lambda *_: asker.serve() or application.quit())
    application.exec_()


def tk(port, area):
    import tkinter

    root = tkinter.Tk()
    root.title("field")
    if area:
        field = tkinter.Text(root)
        text, clear = lambda: field.get("1.0", "end-1c"), lambda: field.delete("1.0", "end")
    else:
        field = tkinter.Entry(root, width=60)
        text, clear = field.get, lambda: field.delete(0, "end")
    field.pack()
    field.focus_set()
    focused = []
    field.bind("<FocusIn>", lambda _: focused.append(True))
    field.bind("<FocusOut>", lambda _: focused.clear())
    asker = Asker(port, lambda: bool(focused), text, clear)

    def asked(*_):
        if not asker.serve():
            root.destroy()

    root.createfilehandler(asker.socket, tkinter.READABLE, asked)
    root.mainloop()


def xlib(port):
    """A window of plain Xlib, which gets text from keys as XmbLookupString and its kin give it, composing dead keys."""
    import ctypes
    import locale

    locale.setlocale(locale.LC_ALL, "C.UTF-8")
    x = ctypes.CDLL("libX11.so.6")
    pointer, number, window_id = ctypes.c_void_p, ctypes.c_int, ctypes.c_ulong
    for name, result, *arguments in (
        ("XOpenDisplay", pointer, ctypes.c_char_p),
        ("XDefaultRootWindow", window_id, pointer),
        ("XCreateSimpleWindow", window_id, pointer, window_id, number, number, number, number, number, window_id, window_id),
        ("XSelectInput", number, pointer, window_id, ctypes.c_long),
        ("XMapWindow", number, pointer, window_id),
        ("XSetLocaleModifiers", ctypes.c_char_p, ctypes.c_char_p),
        ("XOpenIM", pointer, pointer, pointer, pointer, pointer),
        ("XPending", number, pointer),
        ("XNextEvent", number, pointer, pointer),
        ("XFilterEvent", number, pointer, window_id),
        ("XRefreshKeyboardMapping", number, pointer),
        ("XConnectionNumber", number, pointer),
        ("XInternAtom", window_id, pointer, ctypes.c_char_p, number),
        ("XSetWMProtocols", number, pointer, window_id, pointer, number),
        ("XSendEvent", number, pointer, window_id, number, ctypes.c_long, pointer),
    ):
        getattr(x, name).restype, getattr(x, name).argtypes = result, arguments
    x.XCreateIC.restype = pointer
    x.Xutf8LookupString.argtypes = [pointer, pointer, ctypes.c_char_p, number, pointer, pointer]

    display = x.XOpenDisplay(None)
    root = x.XDefaultRootWindow(display)
    window = x.XCreateSimpleWindow(display, root, 0, 0, 500, 300, 0, 0, 0xFFFFFF)
    key_press_mask, focus_change_mask = 1 << 0, 1 << 21
    x.XSelectInput(display, window, key_press_mask | focus_change_mask)
    x.XSetLocaleModifiers(b"@im=none")  # Xlib's own method, which is always there
    method = x.XOpenIM(display, None, None, None)
    preedit_nothing, status_nothing = 0x0008, 0x0400
    context = pointer(x.XCreateIC(pointer(method), b"inputStyle", ctypes.c_ulong(preedit_nothing | status_nothing),
                                  b"clientWindow", ctypes.c_ulong(window), None))
    ping = x.XInternAtom(display, b"_NET_WM_PING", 0)
    x.XSetWMProtocols(display, window, ctypes.byref(ctypes.c_ulong(ping)), 1)
    x.XMapWindow(display, window)

    held, focused = [], []
    event = (ctypes.c_long * 24)()
    buffer = ctypes.create_string_buffer(64)

    def handle():
        kind = ctypes.cast(event, ctypes.POINTER(number))[0]
        if x.XFilterEvent(event, 0):
            return
        if kind == 2:  # KeyPress
            n = x.Xutf8LookupString(context, event, buffer, len(buffer), None, None)
            held.append(buffer.raw[:n].decode().replace("\r", "\n"))
        elif kind == 9:  # FocusIn
            focused.append(True)
        elif kind == 10:  # FocusOut
            focused.clear()
        elif kind == 34:  # MappingNotify
            x.XRefreshKeyboardMapping(event)
        elif kind == 33 and event[7] == ping:  # ClientMessage: send it back to the root window
            event[4] = root
            substructure_mask = 1 << 19 | 1 << 20
            x.XSendEvent(display, root, 0, substructure_mask, event)

    asker = Asker(port, lambda: bool(focused), lambda: "".join(held), held.clear)
    while True:
        while x.XPending(display):
            x.XNextEvent(display, event)
            handle()
        ready, _, _ = select.select([x.XConnectionNumber(display), asker.socket], [], [])
        if ready == [asker.socket] and not asker.serve():
            return


def tty(port):
    """A program in a terminal that takes every byte as it comes."""
    import tty as mode

    mode.setraw(0)
    held = bytearray()
    text = lambda: held.decode(errors="replace").replace("\r", "\n")
    asker = Asker(port, lambda: True, text, held.clear)
    while True:
        ready, _, _ = select.select([0, asker.socket], [], [])
        if 0 in ready:
            held.extend(os.read(0, 65536))
        elif not asker.serve():
            return


fields = {
    "entry": lambda port: gtk(port, False),
    "area": lambda port: gtk(port, True),
    "qt": qt,
    "tkentry": lambda port: tk(port, False),
    "tkarea": lambda port: tk(port, True),
    "xlib": xlib,
    "tty": tty,
}
fields[sys.argv[1]](int(sys.argv[2]))
