"""Gives each request an id, which follows into audit rows, log records and the answer's header."""

import uuid

from healthboard import logs


class RequestId:
    def __init__(self, get_response):
        self.get_response = get_response

    def __call__(self, request):
        request.request_id = uuid.uuid4().hex
        with logs.about(request=request.request_id):
            response = self.get_response(request)
        response["X-Request-Id"] = request.request_id
        return response
