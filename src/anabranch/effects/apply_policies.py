"""Applies effects on policies; decides nothing."""

from __future__ import annotations

from anabranch.effects import kinds
from anabranch.keyspace.keyspace import Keyspace
from anabranch.keyspace.policies import PolicySetting, Subject
from anabranch.keyspace.version_vectors import covers_dot


def set_policies(keyspace: Keyspace, effect: kinds.SetPolicies) -> None:
    """Set or delete policies of a name; of a deleted one the stamp stays while members lack it."""
    replica = keyspace.replica
    replica.hybrid_ms = max(replica.hybrid_ms, effect.stamp_ms)
    database = keyspace.databases[effect.db]
    subject = Subject(effect.is_pattern, effect.subject, effect.group)
    keeps = not covers_dot(replica.watermark, replica.dot)
    for name, text in effect.rows:
        setting = PolicySetting(effect.stamp_ms, *replica.dot, text)
        database.policies.set(subject, name, setting, keeps=keeps)
    database.policies.rebind(subject, database.values, database.order)
