"""The HTTP side and the scripts of a server, for tests that make one themselves."""

from anabranch.scripting import new_machine
from anabranch.server.wings import Wings
from anabranch.web import new_web

__all__ = ["WINGS"]

WINGS = Wings(http=new_web, scripts=new_machine)
