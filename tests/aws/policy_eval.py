"""Decides whether an IAM policy allows a call, conditions included. Nothing offline does: moto ignores them.

A call that needs several resources (AttachVolume: a volume and an instance) is allowed only if each of them is.
Supported: Allow and Deny, wildcards, StringEquals, StringNotEquals, StringLike, StringLikeIfExists and
ForAllValues:StringEquals.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Resource:
    """A resource of the call, with its tags from before the call."""

    arn: str
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Call:
    action: str
    resources: Sequence[Resource]
    request_tags: Mapping[str, str] | None = None  # None: the call sets no tags
    context: Mapping[str, str] = field(default_factory=dict)  # such as ec2:CreateAction


def allows(policy: Mapping[str, Any], call: Call) -> bool:
    return all(_decide(policy, call, resource) for resource in call.resources)


def _decide(policy: Mapping[str, Any], call: Call, resource: Resource) -> bool:
    effects = {
        statement["Effect"]
        for statement in policy["Statement"]
        if _any(statement["Action"], call.action.lower(), lower=True)
        and _any(statement["Resource"], resource.arn)
        and _holds(statement.get("Condition", {}), call, resource)
    }
    return effects == {"Allow"}


def _list(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def _any(patterns: Any, text: str, *, lower: bool = False) -> bool:
    return any(
        fnmatch.fnmatchcase(text, (p.lower() if lower else p).replace("[", "[[]")) for p in _list(patterns)
    )


def _values(key: str, call: Call, resource: Resource) -> list[str]:
    """The values of a condition key in this call; none when the key is absent."""
    name, _, tag = key.partition("/")
    tags = call.request_tags or {}
    if name == "aws:RequestTag":
        return [tags[tag]] if tag in tags else []
    if name == "aws:ResourceTag":
        return [resource.tags[tag]] if tag in resource.tags else []
    if name == "aws:TagKeys":
        return list(tags)
    return [call.context[key]] if key in call.context else []


def _holds(conditions: Mapping[str, Mapping[str, Any]], call: Call, resource: Resource) -> bool:
    for operator, wanted in conditions.items():
        for key, value in wanted.items():
            found, allowed = _values(key, call, resource), _list(value)
            if operator == "StringEquals":
                good = bool(found) and all(v in allowed for v in found)
            elif operator == "StringLike":
                good = bool(found) and all(_any(allowed, v) for v in found)
            elif operator == "StringLikeIfExists":
                good = all(_any(allowed, v) for v in found)
            elif operator == "StringNotEquals":  # true for an absent key
                good = all(v not in allowed for v in found)
            elif operator == "ForAllValues:StringEquals":  # true for an absent key
                good = all(v in allowed for v in found)
            else:
                raise NotImplementedError(f"condition operator {operator}: teach it to policy_eval.py")
            if not good:
                return False
    return True
