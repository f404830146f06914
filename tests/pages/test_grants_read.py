"""A page asks once who may see what; what acts asks anew, so that a grant that was taken away counts at once."""

from __future__ import annotations

from django.db import connection
from django.test.utils import CaptureQueriesContext

from healthboard.people.models import Grant
from healthboard.repairs.models import Switch
from tests import factories as make


def test_a_page_reads_a_persons_grants_once(home, log_in):
    case = make.case(make.instance(home))
    client = log_in("operator")
    of_one = f"/cases/{case.pk}/", f"/instances/{case.instance_id}/"
    for address in ("/", "/fleet/", "/system/", "/api/v1/cases", *of_one):
        with CaptureQueriesContext(connection) as asked:
            assert client.get(address).status_code == 200
        assert sum(' FROM "people_grant" ' in query["sql"] for query in asked) == 1, address


def test_an_act_reads_them_anew(home, log_in):
    """The grant is gone between the page's own question and the act."""
    client, times = log_in("operator"), []

    def taken_away(execute, sql, params, many, context):
        answer = execute(sql, params, many, context)
        if ' FROM "people_grant" ' in sql and not times:
            times.append(1)
            Grant.objects.all()._raw_delete("default")
        return answer

    with connection.execute_wrapper(taken_away):
        answer = client.post("/system/stop/", {"reason": "test"})
    assert answer.status_code == 403 and not Grant.objects.exists()
    assert not Switch.objects.get().stopped
