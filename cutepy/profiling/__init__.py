"""Profiles: every kernel that a program launches, by the scopes that it was launched in.

`profile` records, `scope` names a part of a program, `Profile` prints, saves and compares. See `docs/profile.md`.
"""

from cutepy.profiling.comparison import Slowdown as Slowdown, slower as slower
from cutepy.profiling.recording import Record as Record, Recording as Recording, ScopeCall as ScopeCall
from cutepy.profiling.scopes import scope as scope
from cutepy.profiling.session import Profile as Profile, ProfileError as ProfileError, profile as profile
from cutepy.profiling.sources import Source as Source, SourceError as SourceError
from cutepy.profiling.timeline import Timeline as Timeline, timeline as timeline
from cutepy.profiling.tree import Node as Node, tree as tree

__all__ = [
    "Node",
    "Profile",
    "ProfileError",
    "Record",
    "Recording",
    "ScopeCall",
    "Slowdown",
    "Source",
    "SourceError",
    "Timeline",
    "profile",
    "scope",
    "slower",
    "timeline",
    "tree",
]
