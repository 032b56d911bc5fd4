"""Profiles from TOML files: those built in, then the user's folders, later ones overriding by name.

All findings of all files come at once, each with file, path and the way out, so a person corrects a
folder in one round.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from fairlead._checked_file import check_folder, read_checked
from fairlead.errors import InvalidConfigError
from fairlead.policy.providers.profile import Profile, checked_profile
from fairlead.policy.providers.profile_problem import Problem, told

_LARGEST_FILE = 256 * 1024


def load_profiles(folders: Iterable[Path] = ()) -> dict[str, Profile]:
    """All profiles by name. Raises InvalidConfigError that tells everything wrong in every file."""
    profiles, problems = inspect_profiles(folders)
    if problems:
        raise InvalidConfigError(
            f"{len(problems)} problem(s) in provider profiles:\n{told(problems)}\n",
            hint="correct these files; `fairlead providers validate` checks them again",
        )
    return profiles


def inspect_profiles(folders: Iterable[Path] = ()) -> tuple[dict[str, Profile], list[Problem]]:
    """The sound profiles by name, and what is wrong with the others. Never raises for a bad file."""
    profiles: dict[str, Profile] = {}
    problems: list[Problem] = []
    for folder in (files("fairlead.policy.providers"), *folders):
        for file in _profile_files(folder, problems):
            found = read_profile(file)
            if isinstance(found, Profile):
                profiles[found.name] = found
            else:
                problems += found
    return dict(sorted(profiles.items())), problems


def _profile_files(folder: Traversable, problems: list[Problem]) -> list[Traversable]:
    try:
        return sorted((f for f in folder.iterdir() if f.name.endswith(".toml")), key=lambda f: f.name)
    except OSError as error:
        problems.append(Problem(str(folder), "", f"cannot be read: {error.strerror}", "give a folder"))
        return []


def read_profile(file: Traversable) -> Profile | list[Problem]:
    """The profile of one file with all its variants checked, or everything wrong with it."""
    data = _read_toml(file)
    if isinstance(data, Problem):
        return [data]
    where = str(file)
    stem = file.name.removesuffix(".toml")
    profile = checked_profile(data, where)
    if isinstance(profile, list):
        return profile
    problems = _variant_problems(profile, where)
    if profile.variant_name is not None:
        problems.append(Problem(where, "variant_name", "is set by fairlead", "remove it"))
    if profile.name != stem:
        problems.append(Problem(where, "name", f"is not {stem!r}", "name the file after its profile"))
    return problems or profile


def _variant_problems(profile: Profile, where: str) -> list[Problem]:
    base = profile.model_dump(exclude_unset=True)
    problems: list[Problem] = []
    for name, changes in profile.variants.items():
        fixed = {"name", "variants", "variant_name"} & set(changes)
        if fixed:
            problems.append(Problem(where, f"variants.{name}", f"sets {min(fixed)}", "remove it"))
            continue
        found = checked_profile({**base, "variants": {}}, where, changes, at=f"variants.{name}")
        if isinstance(found, list):
            problems += found
    return problems


def _read_toml(file: Traversable) -> dict[str, Any] | Problem:
    try:
        is_built_in = not isinstance(file, Path) or file.parent == files("fairlead.policy.providers")
        if is_built_in:
            return tomllib.loads(file.read_text("utf-8"))
        raw = read_checked(Path(str(file)), most_bytes=_LARGEST_FILE).data
        check_folder(Path(str(file)).parent)
        return tomllib.loads(raw.decode("utf-8"))
    except InvalidConfigError as error:
        return Problem(str(file), "", error.message.removeprefix(f"{file} "), error.hint)
    except OSError as error:
        return Problem(str(file), "", f"cannot be read: {error.strerror}", "check its permissions")
    except UnicodeDecodeError:
        return Problem(str(file), "", "is not UTF-8", "save it as UTF-8")
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        return Problem(str(file), "", f"is not TOML: {error}", "correct the line named")
