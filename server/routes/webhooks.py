"""The routes of webhooks: a job's deliveries, another attempt, disabled addresses, a test."""

from collections.abc import Mapping

from msgspec.json import encode as json_bytes
from starlette.requests import Request
from starlette.responses import Response

from server.accounts.keys import fresh_id
from server.clock import now_ms
from server.http.bodies import body_of, json_object
from server.http.openapi import ref
from server.http.operation import Answer, Caller, Endpoint, Operation, json_body, json_response
from server.http.problems import Problem
from server.model import answers
from server.model.deliveries import Delivery, host_of
from server.model.ids import Prefix
from server.model.jobs import Job, State
from server.model.orders import Order, Source
from server.parsing.members import members_of, url_text
from server.requests.request import RouteGroup, own_job

MAX_BODY = 10_000


class Webhooks(RouteGroup):
    tag = "webhooks"

    def operations(self) -> list[Operation]:
        takes_url = json_body("WebhookUrl", most=MAX_BODY, example={"url": "https://example.org/hook"}, required=True)
        return [
            Operation(
                Endpoint("GET", "/v1/jobs/{job_id}/deliveries", self.list, "listDeliveries"),
                summary="The webhooks of a job and every attempt to deliver them",
                answers={200: Answer("The deliveries", ref("DeliveryList"))},
            ),
            Operation(
                Endpoint("POST", "/v1/jobs/{job_id}/deliveries/{delivery_id}/redeliver", self.redeliver, "redeliver"),
                summary="Deliver once more, with the same webhook-id",
                answers={202: Answer("It is due now", ref("Delivery"))},
                codes=("queue_full",),
            ),
            Operation(
                Endpoint("POST", "/v1/webhooks/enable", self.enable, "enableWebhook"),
                summary="Call an address again that was given up",
                answers={200: Answer("It will be called", ref("WebhookUrl"))},
                codes=("url_not_allowed",),
                **takes_url,
            ),
            Operation(
                Endpoint("POST", "/v1/webhooks/test", self.test, "testWebhook"),
                summary="Send a signed example to an address now",
                description='A `job.completed` with `"test": true`. The answer tells how the receiver took it.',
                answers={200: Answer("How it went", ref("WebhookTest"))},
                codes=("url_not_allowed",),
                **takes_url,
            ),
        ]

    async def list(self, request: Request, caller: Caller) -> Response:
        job = await own_job(self.parts.jobs, caller, request.path_params["job_id"])
        deliveries = await self.parts.storage.outbox.of_job(job.id)
        return json_response(answers.DeliveryList([_answer(delivery) for delivery in deliveries]))

    async def redeliver(self, request: Request, caller: Caller) -> Response:
        job = await own_job(self.parts.jobs, caller, request.path_params["job_id"])
        delivery = await self.parts.storage.outbox.redeliver(job.id, request.path_params["delivery_id"])
        if delivery is None:
            raise Problem("delivery_not_found", "this job has no such delivery")
        return json_response(_answer(delivery), 202)

    async def enable(self, request: Request, caller: Caller) -> Response:
        url = _url(json_object(await body_of(request, most=MAX_BODY)))
        await self.parts.storage.outbox.enable(caller.account_id, url)
        return json_response({"url": url})

    async def test(self, request: Request, caller: Caller) -> Response:
        url = _url(json_object(await body_of(request, most=MAX_BODY)))
        account = caller.require_account()[0]
        self.parts.webhook_sender.egress.parse(url)
        with self.parts.webhook_sender.slots.hold(account.id, host_of(url)):
            await self.parts.webhook_sender.egress.check(url, asker=account.id, known=True)
            message_id = fresh_id(Prefix.MESSAGE)
            body = json_bytes(self.parts.records.notice(_example(caller), test=True))
            reply = await self.parts.webhook_sender.send(
                url, body, account=account, environment=caller.environment, webhook_id=message_id
            )
        return json_response(answers.WebhookTest.of(reply, delivered=reply.error is None, webhook_id=message_id))


def _example(caller: Caller) -> Job:
    """An invented finished job, to test a receiver with."""
    now = now_ms()
    return Job(
        id=fresh_id(Prefix.JOB),
        account=caller.account_id,
        environment=caller.environment,
        state=State.COMPLETED,
        order=Order(metadata={"test": "true"}),
        source=Source(type="upload", filename="example.wav", format="wav"),
        created_at=now,
        started_at=now,
        finished_at=now,
        progress=1.0,
        duration_s=1.0,
        text="This is a test.",
        model="example",
        engine="scripted",
    )


def _answer(delivery: Delivery) -> answers.Delivery:
    attempts = [answers.Attempt.of(attempt) for attempt in delivery.attempts]
    return answers.Delivery.of(delivery, delivery_id=delivery.id, attempts=attempts)


def _url(body: Mapping[str, object]) -> str:
    members = members_of(body)
    url = members.need("url", url_text)
    members.check()
    return url
