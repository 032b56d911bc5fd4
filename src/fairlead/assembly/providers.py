"""The provider profiles and the apps that the engine uses, with the user's settings applied. Spec: T1."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path

from fairlead._checked_file import read_checked
from fairlead._core.secret import Secret
from fairlead.assembly.settings import ProviderAppTable, Settings
from fairlead.engine.tokens.deps import UNKNOWN_APP, AppCredential
from fairlead.errors import InvalidConfigError, InvalidInputError, ProviderNotFoundError
from fairlead.policy.providers.profile import Profile
from fairlead.policy.providers.profile_load import load_profiles
from fairlead.policy.text.names import shown

_ALIKE = 0.75


class ProfileRegistry:
    """The profiles by name: built-in ones, then the user's files, then overlays of the settings."""

    def __init__(self, settings: Settings) -> None:
        folders = [settings.providers_dir] if settings.providers_dir else []
        self._profiles = load_profiles(folders)
        for name, app in settings.providers.items():
            if name not in self._profiles:
                raise InvalidConfigError(
                    f"settings name provider {name!r}, for which there is no profile",
                    hint=self._suggestion(name)
                    or "see `fairlead providers list`, or set providers_dir to your own profiles",
                )
            if app.overlay:
                self._profiles[name] = self._profiles[name].overlay(app.overlay)
        self._variants: dict[tuple[str, str | None], Profile] = {}

    def profile(self, provider: str, variant: str | None) -> Profile:
        """Return the profile of *provider* with the changes of *variant*.

        Raises:
            ProviderNotFoundError: No profile has this name.
            InvalidInputError: The profile has no such variant.
        """
        profile = self._variants.get((provider, variant))
        if profile is None:
            if provider not in self._profiles:
                hint = self._suggestion(provider)
                raise ProviderNotFoundError("no profile has this name", provider=provider, hint=hint)
            profile = self._profiles[provider].variant(variant)
            self._variants[provider, variant] = profile
        return profile

    def refuse_misspelt(self, provider: str, *, tenant: str | None = None) -> None:
        """Raise InvalidInputError if *provider* has no profile but resembles the name of one.

        Any other name without a profile is accepted as a label of the caller.
        """
        if provider not in self._profiles and (hint := self._suggestion(provider)):
            raise InvalidInputError(f"there is no provider {shown(provider)}", tenant=tenant, hint=hint)

    def _suggestion(self, provider: str) -> str | None:
        near = get_close_matches(provider, self._profiles, n=1, cutoff=_ALIKE)
        return f"did you mean {near[0]}?" if near else None

    def all(self) -> Mapping[str, Profile]:
        """Return every profile by name."""
        return self._profiles

    def backoff_factor(self, provider: str | None) -> float:
        """Return the factor by which the provider's retry delays are scaled; 1 without a profile."""
        profile = self._profiles.get(provider or "")
        return profile.backoff_factor if profile else 1.0


class AppRegistry:
    """Your apps by provider. Secrets are read once, at start."""

    def __init__(self, settings: Settings) -> None:
        self._apps = {name: _credential(name, app) for name, app in settings.providers.items()}

    def app(self, provider: str, client_id: str) -> AppCredential:
        """Return the app *client_id*; for an empty id, the provider's app of the settings.

        An app that the settings do not have is returned without secrets.
        """
        configured = self._apps.get(provider)
        if configured is not None and client_id in ("", configured.client_id):
            return configured
        return AppCredential(client_id=client_id, fingerprint=UNKNOWN_APP)


def _credential(provider: str, app: ProviderAppTable) -> AppCredential:
    secret = Secret(app.client_secret.get_secret_value()) if app.client_secret else None
    if app.client_secret_file is not None:
        secret = Secret(_text(provider, app.client_secret_file).strip(), pinned=True)
    key = Secret(_text(provider, app.private_key_file), pinned=True) if app.private_key_file else None
    identity = f"{app.client_id}\0{secret.reveal() if secret else ''}\0{key.reveal() if key else ''}"
    return AppCredential(
        client_id=app.client_id,
        client_secret=secret,
        private_key=key,
        key_id=app.key_id,
        hosts=frozenset(app.hosts),
        fingerprint=hashlib.sha256(identity.encode()).hexdigest()[:16],
    )


def _text(provider: str, file: Path) -> str:
    try:
        return read_checked(file, is_secret=True).data.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidConfigError(
            f"{file} cannot be read ({type(error).__name__})", provider=provider
        ) from None
