import pytest

from healthboard.people import tokens
from tests import factories


class Caller:
    """A client that sends a bearer token."""

    def __init__(self, client, token):
        self.client, self.headers = client, {"HTTP_AUTHORIZATION": f"Bearer {token}"}

    def get(self, path, **query):
        return self.client.get(f"/api/v1{path}", query, **self.headers)

    def post(self, path, body, content_type="application/json"):
        return self.client.post(f"/api/v1{path}", body, content_type=content_type, **self.headers)


@pytest.fixture
def calling(client):
    """`calling("operator", pool="train")`: a caller with a fresh token of a fresh person."""

    def make(role, **scope):
        user = factories.person(role, **scope)
        caller = Caller(client, tokens.issue_api(user, actor=factories.actor(user)))
        caller.user = user
        return caller

    return make
