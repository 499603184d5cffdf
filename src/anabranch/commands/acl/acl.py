"""ACL: users and their rules, the log of denials, and questions about both."""

from __future__ import annotations

from collections.abc import Iterable

from anabranch.effects import kinds
from anabranch.engine import texts
from anabranch.engine.acl.rules import DEFAULT_USER
from anabranch.engine.acl.selectors import CATEGORIES, Selector
from anabranch.engine.acl.users import User, denial_text
from anabranch.engine.arguments import integer
from anabranch.engine.context import Context
from anabranch.engine.help import wrong_subcommand
from anabranch.errors import CommandError
from anabranch.resp.encode import OK, bulk, null
from anabranch.resp.encode import integer as integer_reply
from anabranch.resp.values import SetReply

_NO_FILE = (
    "ERR This Redis instance is not configured to use an ACL file. You may want to specify users "
    "via the ACL SETUSER command and then issue a CONFIG REWRITE (assuming you have a Redis "
    "configuration file set) in order to store users in the Redis configuration."
)
_BITS = (
    "ERR ACL GENPASS argument must be the number of bits for the output password, "
    "a positive number up to 4096"
)
_BITS_MAX = 4096


# -- who there is -----------------------------------------------------------------------------


def whoami(ctx: Context, _args: list[bytes]) -> bytes:
    """ACL WHOAMI: the name of the user of this connection."""
    assert ctx.session.user is not None
    return bulk(ctx.session.user.name)


def users(ctx: Context, _args: list[bytes]) -> bytes:
    """ACL USERS: the names of all users, sorted."""
    return ctx.reply(sorted(ctx.server.acl.users))


def list_(ctx: Context, _args: list[bytes]) -> bytes:
    """ACL LIST: every user as a line of configuration, sorted by name."""
    return ctx.reply(ctx.server.acl.lines())


def getuser(ctx: Context, args: list[bytes]) -> bytes:
    """ACL GETUSER username: flags, passwords and selectors of a user, null if there is none."""
    user = ctx.server.acl.users.get(args[2])
    if user is None:
        return null(ctx.resp3)
    root, *others = user.selectors
    return ctx.reply(
        {
            b"flags": SetReply(user.flag_words()),
            b"passwords": list(user.passwords),
            **_selector_fields(root),
            b"selectors": [_selector_fields(each) for each in others],
        }
    )


def _selector_fields(selector: Selector) -> dict[bytes, bytes]:
    return {
        b"commands": selector.commands_text(),
        b"keys": selector.keys_text(),
        b"channels": selector.channels_text(),
    }


# -- changing who there is --------------------------------------------------------------------


def setuser(ctx: Context, args: list[bytes]) -> bytes:
    """ACL SETUSER username [rule ...]."""
    keeps = not ctx.settings.aclfile  # which would override it at the next start
    if keeps:
        _may_keep(ctx)
        ctx.server.acl.before_keeping()
    user = ctx.server.acl.setuser(args[2], args[3:])
    _follow(ctx, [user])
    if keeps:
        ctx.emit(kinds.SetUser(user.name, user.text()))
    return OK


def deluser(ctx: Context, args: list[bytes]) -> bytes:
    """ACL DELUSER username [username ...]."""
    names = args[2:]
    if DEFAULT_USER in names:
        raise CommandError("ERR The 'default' user cannot be removed")
    _may_keep(ctx)
    gone = [user for name in names if (user := ctx.server.acl.deluser(name)) is not None]
    for user in gone:
        if user.name in ctx.keyspace.users:
            ctx.emit(kinds.DropUser(user.name))
    _expel(ctx, gone)
    return integer_reply(len(gone))


def _may_keep(ctx: Context) -> None:
    """Users are kept in the log, and nothing is added to it while it is being loaded."""
    if ctx.server.dispatcher.is_loading:
        raise CommandError(texts.LOADING)


def _follow(ctx: Context, changed: Iterable[User]) -> None:
    """Rules have changed: connections of these users stay if they may keep their subscriptions."""
    users = set(changed)
    for session in list(ctx.server.sessions.values()):
        user = session.user
        if user in users:
            session.refresh()
            channels = session.channels | session.shard_channels
            if not user.may_hear(channels, session.patterns):
                ctx.server.host.close(session)


def _expel(ctx: Context, gone: Iterable[User]) -> None:
    """Close the connections of removed users."""
    users = set(gone)
    for session in list(ctx.server.sessions.values()):
        if session.user in users:
            session.user = None
            session.refresh()
            ctx.server.host.close(session)


# -- files ------------------------------------------------------------------------------------


def load(ctx: Context, _args: list[bytes]) -> bytes:
    """ACL LOAD: replace all users by those of the ``aclfile``, or none if a line is wrong."""
    path = _acl_file(ctx)
    gone = ctx.server.acl.load(ctx.server.host.read_acl_file(), path)
    _expel(ctx, gone)
    _follow(ctx, ctx.server.acl.users.values())
    return OK


def save(ctx: Context, _args: list[bytes]) -> bytes:
    """ACL SAVE: write all users into the ``aclfile``."""
    _acl_file(ctx)
    text = b"".join([line + b"\n" for line in ctx.server.acl.lines()])
    ctx.server.host.write_acl_file(text.decode("utf-8", "surrogateescape"))
    return OK


def _acl_file(ctx: Context) -> str:
    path = ctx.settings.aclfile
    if not path:
        raise CommandError(_NO_FILE)
    return path


# -- questions --------------------------------------------------------------------------------


def cat(ctx: Context, args: list[bytes]) -> bytes:
    """ACL CAT [category]: the categories, or the commands of one."""
    if len(args) > 3:
        raise wrong_subcommand(args)
    if len(args) == 2:
        return ctx.reply(list(CATEGORIES))
    category = args[2].lower().decode("latin-1")
    if category not in CATEGORIES:
        raise CommandError(b"ERR Unknown category '%b'" % args[2])
    return ctx.reply([each.full_name for each in ctx.server.acl.index.in_category(category)])


def dryrun(ctx: Context, args: list[bytes]) -> bytes:
    """ACL DRYRUN username command [argument ...]."""
    user = ctx.server.acl.users.get(args[2])
    if user is None:
        raise CommandError(b"ERR User '%b' not found" % args[2])
    request = args[3:]
    command = ctx.server.dispatcher.command_of(request)
    if command is None:
        raise CommandError(b"ERR Command '%b' not found" % request[0])
    if not command.accepts(len(request)):
        raise texts.wrong_arity(command.full_name)
    denial = user.judge(command, request)
    return OK if denial is None else bulk(denial_text(denial, user, naming=True))


def log(ctx: Context, args: list[bytes]) -> bytes:
    """ACL LOG [count | RESET]: the newest denials, or forget all."""
    if len(args) > 3:
        raise wrong_subcommand(args)
    count = 10
    if len(args) == 3:
        if args[2].lower() == b"reset":
            ctx.server.acl.log.clear()
            return OK
        count = max(integer(args[2]), 0)
    return ctx.reply(ctx.server.acl.log.newest(count, ctx.now_ms))


def genpass(ctx: Context, args: list[bytes]) -> bytes:
    """ACL GENPASS [bits]: hexadecimal digits for at least so many bits."""
    if len(args) > 3:
        raise wrong_subcommand(args)
    bits = integer(args[2]) if len(args) == 3 else 256
    if not 0 < bits <= _BITS_MAX:
        raise CommandError(_BITS)
    digits = (bits + 3) // 4
    return bulk(ctx.server.host.random_bytes((digits + 1) // 2).hex()[:digits].encode())
