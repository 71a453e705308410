"""Imported first, so that SIGINT during imports ends the process without a traceback."""

import signal

signal.signal(signal.SIGINT, signal.SIG_DFL)
