"""The API against its own description: requests that schemathesis makes from it are answered as it says."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from oarlock.web.app import openapi
from tests.bed import needs_root
from tests.clusters import add_nodes
from tests.web.nodeless_server import Running, alone

pytestmark = [needs_root, pytest.mark.soak, pytest.mark.timeout(900)]

EXAMPLES = 100  # of each verb
WHOLE_SECONDS = 20


@pytest.fixture(scope="module")
def api(sqlite_of_module) -> Iterator[Running]:
    with alone(sqlite_of_module) as running:
        running.core.database.write(lambda tx: add_nodes(tx, ["n1", "n2"]))
        yield running


def test_every_verb_answers_as_the_description_of_the_api_says(api: Running):
    """Never a failure of the server, never a status, a kind of body or a field that is not described."""
    import schemathesis
    import schemathesis.specs.openapi.checks as described
    from schemathesis.checks import not_a_server_error

    checks = [
        not_a_server_error, described.status_code_conformance, described.content_type_conformance,
        described.response_headers_conformance, described.response_schema_conformance,
    ]  # fmt: skip
    token = api.client.post("/tokens", {"name": "schema"}).body["token"]
    asked = 0
    for found in schemathesis.openapi.from_dict(openapi()).get_all_operations():
        operation = found.ok()

        @settings(
            max_examples=EXAMPLES, deadline=None, database=None, derandomize=True, phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        @given(case=operation.as_strategy())
        def ask(case):
            nonlocal asked
            asked += 1
            response = case.call(
                base_url=f"http://127.0.0.1:{api.port}",
                headers={"Authorization": f"Bearer {token}"},
                timeout=WHOLE_SECONDS,
            )
            case.validate_response(response, checks=checks)

        ask()
    print(f"{asked} requests")
    assert asked > 10 * EXAMPLES
