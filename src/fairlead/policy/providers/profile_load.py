"""Profiles from TOML files: those built in, then the user's folders, later ones overriding by name.

All problems of all files are reported at once, each with its file, path and hint, so that you can correct a
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
from fairlead.policy.providers.profile import Profile, build_profile
from fairlead.policy.providers.profile_problem import ProfileProblem, format_problems

_MAX_FILE_BYTES = 256 * 1024


def load_profiles(folders: Iterable[Path] = ()) -> dict[str, Profile]:
    """Return the built-in profiles and those of *folders*, by name.

    Raises:
        InvalidConfigError: A file is not a valid profile. The message lists all problems of all files.
    """
    profiles, problems = inspect_profiles(folders)
    if problems:
        raise InvalidConfigError(
            f"{len(problems)} problem(s) in provider profiles:\n{format_problems(problems)}\n",
            hint="correct these files; `fairlead providers validate` checks them again",
        )
    return profiles


def inspect_profiles(folders: Iterable[Path] = ()) -> tuple[dict[str, Profile], list[ProfileProblem]]:
    """Return the valid profiles by name, and the problems of all other files."""
    profiles: dict[str, Profile] = {}
    problems: list[ProfileProblem] = []
    for folder in (files("fairlead.policy.providers"), *folders):
        for file in _profile_files(folder, problems):
            result = read_profile(file)
            if isinstance(result, Profile):
                profiles[result.name] = result
            else:
                problems += result
    return dict(sorted(profiles.items())), problems


def _profile_files(folder: Traversable, problems: list[ProfileProblem]) -> list[Traversable]:
    """Return the TOML files of *folder*, sorted; if it cannot be read, add that to *problems*."""
    try:
        return sorted((f for f in folder.iterdir() if f.name.endswith(".toml")), key=lambda f: f.name)
    except OSError as error:
        problems.append(ProfileProblem(str(folder), "", f"cannot be read: {error.strerror}", "give a folder"))
        return []


def read_profile(file: Traversable) -> Profile | list[ProfileProblem]:
    """Return the profile of one file, after checking all its variants, or the file's problems."""
    data = _read_toml(file)
    if isinstance(data, ProfileProblem):
        return [data]
    path = str(file)
    stem = file.name.removesuffix(".toml")
    profile = build_profile(data, path)
    if isinstance(profile, list):
        return profile
    problems = _variant_problems(profile, path)
    if profile.variant_name is not None:
        problems.append(ProfileProblem(path, "variant_name", "is set by fairlead", "remove it"))
    if profile.name != stem:
        problems.append(ProfileProblem(path, "name", f"is not {stem!r}", "name the file after its profile"))
    return problems or profile


def _variant_problems(profile: Profile, path: str) -> list[ProfileProblem]:
    """Return the problems of all variants of *profile*, which was read from the file *path*."""
    base = profile.model_dump(exclude_unset=True)
    problems: list[ProfileProblem] = []
    for name, changes in profile.variants.items():
        forbidden = {"name", "variants", "variant_name"} & set(changes)
        if forbidden:
            problems.append(ProfileProblem(path, f"variants.{name}", f"sets {min(forbidden)}", "remove it"))
            continue
        variant = build_profile({**base, "variants": {}}, path, changes, table=f"variants.{name}")
        if isinstance(variant, list):
            problems += variant
    return problems


def _read_toml(file: Traversable) -> dict[str, Any] | ProfileProblem:
    try:
        is_built_in = not isinstance(file, Path) or file.parent == files("fairlead.policy.providers")
        if is_built_in:
            return tomllib.loads(file.read_text("utf-8"))
        raw = read_checked(Path(str(file)), most_bytes=_MAX_FILE_BYTES).data
        check_folder(Path(str(file)).parent)
        return tomllib.loads(raw.decode("utf-8"))
    except InvalidConfigError as error:
        return ProfileProblem(str(file), "", error.message.removeprefix(f"{file} "), error.hint)
    except OSError as error:
        return ProfileProblem(str(file), "", f"cannot be read: {error.strerror}", "check its permissions")
    except UnicodeDecodeError:
        return ProfileProblem(str(file), "", "is not UTF-8", "save it as UTF-8")
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        return ProfileProblem(str(file), "", f"is not TOML: {error}", "correct the line named")
