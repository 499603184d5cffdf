"""The thin shell around a region: sockets, time, signals, logs, the process.

It does what the region asks for and decides nothing about data.
"""
