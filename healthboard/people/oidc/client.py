"""Our client of the provider: allauth's, with a nonce, a verified signature, and endpoints that are the issuer's own."""

from __future__ import annotations

import hashlib
import secrets
import threading
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

from allauth.socialaccount.adapter import get_adapter
from allauth.socialaccount.internal import jwtkit
from allauth.socialaccount.models import SocialApp, SocialToken
from allauth.socialaccount.providers.oauth2.client import OAuth2Error
from allauth.socialaccount.providers.oauth2.views import OAuth2CallbackView
from allauth.socialaccount.providers.openid_connect.provider import OpenIDConnectProvider
from allauth.socialaccount.providers.openid_connect.views import OpenIDConnectOAuth2Adapter
from django.conf import settings
from django.http import HttpRequest
from django.urls import reverse

from healthboard import clock
from healthboard.people.oidc import config

#: what an id token may be signed with; none of them takes a shared secret
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
ENDPOINTS = ("authorization_endpoint", "token_endpoint", "jwks_uri")
#: characters of a subject, as they are kept
LONGEST = 191
#: an id token older than this is not the answer to a log-in that happens now
OLDEST = timedelta(minutes=10)
#: so long the provider's description of itself is kept, and so many ask for it at once: anybody can begin a log-in, and
#: a slow provider must not take all threads of the web server
DESCRIBED = timedelta(minutes=10)
_room = threading.BoundedSemaphore(4)
#: issuer -> (its description, when it was read)
_described: dict[str, tuple[dict[str, Any], datetime]] = {}


class Provider(OpenIDConnectProvider):
    def __init__(self, request: HttpRequest) -> None:
        told = settings.OIDC
        app = SocialApp(
            provider=self.id, provider_id=told.key, name=told.name, client_id=told.client_id, secret=told.secret
        )
        app.settings = {"server_url": told.issuer, "scope": list(told.scope), "oauth_pkce_enabled": True}
        super().__init__(request, app=app)

    def get_oauth2_adapter(self, request: HttpRequest) -> Client:
        return Client(request)

    def get_callback_url(self) -> str:
        return reverse("oidc_callback")

    def extract_uid(self, data: dict[str, Any]) -> str:
        return str(data["sub"])

    def extract_extra_data(self, data: dict[str, Any]) -> dict[str, Any]:
        """No more about a person is kept than who they are."""
        return {"iss": data["iss"], "sub": data["sub"]}

    def extract_common_fields(self, data: dict[str, Any]) -> dict[str, Any]:
        return {
            "username": str(data.get("preferred_username") or data.get("email") or data["sub"])[:140],
            "first_name": str(data.get("given_name") or "")[:150],
            "last_name": str(data.get("family_name") or "")[:150],
            "name": str(data.get("name") or "")[:150],
        }

    def extract_email_addresses(self, data: dict[str, Any]) -> list[Any]:
        return []


class Client(OpenIDConnectOAuth2Adapter):
    """One exchange with the provider. `state` is what was put into the session when it began."""

    state: dict[str, Any]

    def __init__(self, request: HttpRequest) -> None:
        super().__init__(request, settings.OIDC.key)

    def get_provider(self) -> Provider:
        return Provider(self.request)

    def get_callback_url(self, request: HttpRequest, app: Any) -> str:
        return (settings.URL or f"{request.scheme}://{request.get_host()}") + reverse("oidc_callback")

    @cached_property
    def openid_config(self) -> dict[str, Any]:
        """The issuer's own description, not older than `DESCRIBED`. Raises OAuth2Error where it is another's, or leads
        somewhere unsafe, or where too many wait for it."""
        issuer, now = settings.OIDC.issuer, clock.now()
        kept, at = _described.get(issuer, ({}, now))
        if kept and timedelta(0) <= now - at < DESCRIBED:
            return kept
        if not _room.acquire(blocking=False):
            raise OAuth2Error("Too many wait for the provider at this moment.")
        try:
            told = _description(issuer)
        finally:
            _room.release()
        _described[issuer] = told, now
        return told

    def complete_login(self, request: HttpRequest, app: SocialApp, token: SocialToken, **kwargs: Any) -> Any:
        claims = self._claims(kwargs["response"].get("id_token"), app)
        if settings.OIDC.claim not in claims and config.fits(str(self.openid_config.get("userinfo_endpoint", ""))):
            told = self._fetch_user_info(token.token)
            if not isinstance(told, dict) or told.get("sub") != claims["sub"]:
                raise OAuth2Error("The provider's user info is about somebody else.")
            claims = {**told, **claims}
        request.oidc = claims
        return self.get_provider().sociallogin_from_response(request, claims)

    def _claims(self, raw: Any, app: SocialApp) -> dict[str, Any]:
        """Claims of the id token: signed by the issuer, for us, now, and the answer to what this browser asked."""
        if not isinstance(raw, str):
            raise OAuth2Error("The provider gave no id token.")
        if jwtkit.jwt.get_unverified_header(raw).get("alg") not in ALGORITHMS:
            raise OAuth2Error("The id token is signed by a method that is not accepted.")
        claims = jwtkit.verify_and_decode(
            credential=raw, keys_url=self.openid_config["jwks_uri"], issuer=self.openid_config["issuer"],
            audience=app.client_id, lookup_kid=jwtkit.lookup_kid_jwk, verify_signature=True,
        )  # fmt: skip
        nonce = self.state.get("nonce") or ""
        if not nonce or not secrets.compare_digest(str(claims.get("nonce", "")), digest(nonce)):
            raise OAuth2Error("The id token is not the answer to this log-in.")
        if isinstance(claims.get("aud"), list) and len(claims["aud"]) > 1 and claims.get("azp") != app.client_id:
            raise OAuth2Error("The id token is for another client.")
        if (
            not isinstance(claims.get("sub"), str)
            or not 0 < len(claims["sub"]) <= LONGEST
            or not isinstance(claims.get("iat"), int)
        ):
            raise OAuth2Error("The id token does not say about whom it is, or when it was made.")
        if settings.OIDC.acr and claims.get("acr") not in settings.OIDC.acr:
            raise OAuth2Error("The provider asked for less than is wanted here (acr).")
        if clock.now() - datetime.fromtimestamp(claims["iat"], UTC) > OLDEST:
            raise OAuth2Error("The id token is too old.")
        return claims


def _description(issuer: str) -> dict[str, Any]:
    with get_adapter().get_requests_session() as session:
        answer = session.get(f"{issuer}/.well-known/openid-configuration", allow_redirects=False)
        answer.raise_for_status()
        told = answer.json()
    if not isinstance(told, dict) or str(told.get("issuer", "")).rstrip("/") != issuer:
        raise OAuth2Error("The provider calls itself by another name than the configured issuer.")
    if unsafe := [name for name in ENDPOINTS if not config.fits(str(told.get(name, "")))]:
        raise OAuth2Error(f"The provider's {unsafe[0]} is not https.")
    return told


class Callback(OAuth2CallbackView):
    adapter: Client

    def _get_state(self, request: HttpRequest, provider: Provider) -> Any:
        state, answer = super()._get_state(request, provider)
        self.adapter.state = state or {}
        return state, answer


def begin(request: HttpRequest, *, next_url: str, again: bool) -> Any:
    """The redirect to the provider. `again`: it must ask the person anew, and say when it did."""
    nonce = secrets.token_urlsafe(24)
    params = {"nonce": digest(nonce), **({"prompt": "login", "max_age": "0"} if again else {})}
    if settings.OIDC.acr:
        params["acr_values"] = " ".join(settings.OIDC.acr)
    return Provider(request).redirect(
        request, process="login", next_url=next_url, auth_params=params, nonce=nonce, again=again
    )


def digest(nonce: str) -> str:
    """The provider sees a digest only, so that whoever reads it there cannot make it."""
    return hashlib.sha256(nonce.encode()).hexdigest()
