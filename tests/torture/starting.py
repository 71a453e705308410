"""Imported first: until a command handles signals they end the process, without a traceback from inside an import."""

import signal

signal.signal(signal.SIGINT, signal.SIG_DFL)
