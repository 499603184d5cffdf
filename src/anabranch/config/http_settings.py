"""The directives of the HTTP port; the rest is in ``settings``."""

from __future__ import annotations

from anabranch.config.kinds import Integer, Secret, WordList, YesNo
from anabranch.config.rows import row


class HttpSettings:
    """The values of these directives, as attributes."""

    # fmt: off
    http_port: int = row(
        Integer(0, 65535), "0", group="http",
        sentence="TCP port of the page, metrics and health checks; 0 is off. Needs the extra "
        "anabranch[web].",
    )
    http_bind: str = row(
        WordList(), "127.0.0.1 -::1", group="http",
        sentence="Addresses to listen on for HTTP, as in bind.",
    )
    http_hosts: str = row(
        WordList(64), "", group="http",
        sentence="Names of this machine that a browser may use; * is all of them. localhost and "
        "IP addresses always work.",
    )
    http_token: str = row(
        Secret(16), "", group="http", secret=True,
        sentence="A client that sends this token (Authorization: Bearer) acts as the default user.",
    )
    metrics_max_streams: int = row(
        Integer(0, 1000000), "1000", group="http",
        sentence="How many streams have series of their own in /metrics: those with the most "
        "entries.",
    )
    metrics_per_consumer: bool = row(
        YesNo(), "no", group="http",
        sentence="Whether each consumer has series of its own in /metrics, up to 100 in a group.",
    )
    # fmt: on
