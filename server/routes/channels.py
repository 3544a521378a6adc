"""/v1/channels: permanent addresses for live captions. Each shows the newest live session of its channel.

POST /v1/live names the channel of a session. The address ends when the channel is deleted.
"""

import re
import time
from collections.abc import AsyncGenerator
from contextlib import ExitStack
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from server.accounts.keys import fresh_id
from server.accounts.signed import check_channel_token
from server.clock import now_ms
from server.http.bodies import body_of, json_object
from server.http.client_addresses import IdleReport, check_account
from server.http.openapi import ref
from server.http.operation import Answer, Auth, Caller, Endpoint, Operation, Parameter, json_body, json_response
from server.http.streamed import KEEP_ALIVE, MEDIA_TYPE, STREAM_HEADERS, Streamed, event, retry
from server.model import answers
from server.model.accounts import Channel
from server.model.errors import Refused
from server.model.events import Event
from server.model.ids import Prefix
from server.parsing.declared import channel_name
from server.parsing.members import members_of
from server.requests.request import LANG, RouteGroup, query_languages
from server.routes.events import ONE_LANG, SHAPE_PARAMETERS, VTT_ANSWERS, Subtitles
from server.streams.feed import Languages, Rendered
from server.streams.following import ChannelFollowing, ChannelPosition

MAX_BODY = 4096
TOKEN = Parameter("token", "query", {"type": "string"}, "The token of the channel's URL")
_PLACE = re.compile(r"(job_[0-9A-Z]{26}):([0-9]{1,18})")


@dataclass(frozen=True, slots=True)
class Channels(RouteGroup):
    """Handlers for channels and their readers."""

    tag = "channels"
    following: ChannelFollowing
    subtitles: Subtitles

    def operations(self) -> list[Operation]:
        return [*self._owners(), *self._readers()]

    def _owners(self) -> list[Operation]:
        return [
            Operation(
                Endpoint("POST", "/v1/channels", self.create, "createChannel"),
                summary="Make a lasting address for live captions",
                description="Name the channel in `POST /v1/live`, and its address shows that session. Repeating the "
                "request answers with the same address.",
                **json_body("ChannelRequest", most=MAX_BODY, example={"name": "main-stage"}, required=True),
                answers={201: Answer("The channel", ref("Channel"))},
                codes=("quota_exceeded",),
            ),
            Operation(
                Endpoint("GET", "/v1/channels", self.list, "listChannels"),
                summary="List the account's channels",
                answers={200: Answer("The channels", ref("ChannelList"))},
            ),
            Operation(
                Endpoint("DELETE", "/v1/channels/{channel_id}", self.delete, "deleteChannel"),
                summary="End a channel's address",
                answers={204: Answer("Nobody reads there any more")},
            ),
        ]

    def _readers(self) -> list[Operation]:
        place = {"type": "string", "pattern": f"^{_PLACE.pattern}$"}
        return [
            Operation(
                Endpoint("GET", "/v1/channels/{channel_id}/events", self.stream, "streamChannel"),
                auth=Auth.OWN,
                summary="Follow a channel as Server-Sent Events",
                description="The events of the session that is shown, then those of the next one, with the session's "
                "`job_id`. Takes the owner's key, or the channel's token. Sessions that are over are not shown to "
                "readers who come later.",
                parameters=(
                    TOKEN,
                    Parameter("Last-Event-ID", "header", place, "Go on behind this"),
                    Parameter("last_event_id", "query", place, "The same for clients that cannot set headers"),
                    LANG,
                ),
                answers={200: Answer("The events", media_type=MEDIA_TYPE)},
                codes=("invalid_token", "invalid_last_event_id", "invalid_parameter"),
            ),
            Operation(
                Endpoint("GET", "/v1/channels/{channel_id}/live.vtt", self.show_subtitles, "channelSubtitles"),
                auth=Auth.OWN,
                summary="The subtitles of the channel's newest session so far",
                parameters=(TOKEN, ONE_LANG, *SHAPE_PARAMETERS),
                answers=VTT_ANSWERS,
                codes=("invalid_token", "output_not_found", "invalid_parameter"),
            ),
        ]

    # --- for the owner -----------------------------------------------------------------------------------------------

    async def create(self, request: Request, caller: Caller) -> Response:
        members = members_of(json_object(await body_of(request, most=MAX_BODY)))
        name = members.need("name", channel_name)
        members.check()
        channel = await self.parts.storage.channels.add(
            Channel(
                id=fresh_id(Prefix.CHANNEL),
                account=caller.account_id,
                environment=caller.environment,
                name=name,
                created_at=now_ms(),
            )
        )
        return json_response(self._answer(channel), 201)

    async def list(self, _request: Request, caller: Caller) -> Response:
        channels = await self.parts.storage.channels.all(caller.account_id, caller.environment)
        return json_response(answers.ChannelList([self._answer(channel) for channel in channels]))

    async def delete(self, request: Request, caller: Caller) -> Response:
        channel_id = request.path_params["channel_id"]
        if not await self.parts.storage.channels.delete(caller.account_id, caller.environment, channel_id):
            raise no_such_channel()
        return Response(status_code=204)

    def _answer(self, channel: Channel) -> answers.Channel:
        return answers.Channel.of(
            channel,
            channel_id=channel.id,
            job_id=channel.job,
            page_url=self.parts.links.channel_page(channel),
            events_url=self.parts.links.channel(channel, "events"),
            vtt_url=self.parts.links.channel(channel, "live.vtt"),
            reachable=self.parts.links.reachable,
        )

    # --- for readers -------------------------------------------------------------------------------------------------

    async def stream(self, request: Request, _caller: Caller) -> Response:
        channel = await self._admit(request)
        languages = query_languages(request.query_params)
        place = _place(request.headers.get("last-event-id") or request.query_params.get("last_event_id"))
        with ExitStack() as seat:
            seat.enter_context(self.parts.stream_limits.hold_channel_stream(channel))
            if request.method == "HEAD":
                return Response(headers=STREAM_HEADERS)
            return Streamed(
                self._lines(channel.id, place, languages, IdleReport(request.scope)),
                seat.pop_all(),
                headers=STREAM_HEADERS,
            )

    async def show_subtitles(self, request: Request, _caller: Caller) -> Response:
        channel = await self._admit(request)
        job = None if channel.job is None else await self.parts.jobs.get(channel.job)
        return await self.subtitles.answer(request, job)

    async def _admit(self, request: Request) -> Channel:
        """The channel of the path, for its owner's key or for its token. Raises RequestError."""
        channel_id, token = request.path_params["channel_id"], request.query_params.get("token")
        account = None
        if token is None:
            account = (await self.parts.access.identify(request)).account_id
        else:
            check_channel_token(self.parts.keys, token, channel_id=channel_id)
        channel = await self.parts.storage.channels.get(channel_id)
        if channel is None or channel.environment != request.state.environment:
            raise no_such_channel()
        if account not in (None, channel.account):
            raise no_such_channel()
        check_account(request, channel.account)
        return channel

    async def _lines(
        self, channel_id: str, place: ChannelPosition, languages: Languages, idle_report: IdleReport
    ) -> AsyncGenerator[bytes]:
        rules = self.parts.stream_limits.rules
        yield retry(rules.retry_ms)
        sent = time.monotonic()
        async for update in self.following.follow(channel_id, place):
            if update is not None:
                idle_report.rest_while(False)
                async with update.reader.record_delivery(update.batch):
                    yield update.batch.join_bytes(_as_event, languages)
            elif time.monotonic() - sent < rules.keep_alive_s:
                continue
            else:
                idle_report.rest_while(True)
                yield KEEP_ALIVE
            sent = time.monotonic()


def no_such_channel() -> Refused:
    return Refused("channel_not_found", "there is no such channel")


def _place(text: str | None) -> ChannelPosition:
    """Parse a Last-Event-ID, behind which the reader continues. Raises Refused invalid_last_event_id."""
    if not text:
        return ChannelPosition()
    found = _PLACE.fullmatch(text.strip())
    if found is None:
        raise Refused("invalid_last_event_id", "Last-Event-ID must be the id of an event of this channel")
    return ChannelPosition(found[1], int(found[2]))


def _as_event(item: Rendered) -> bytes:
    """An event whose id is made of its session and its number, because a channel has many sessions."""
    seen = item.seen
    place = f"id: {seen.stream}:{seen.seq}\n".encode() if isinstance(seen, Event) else b""
    return place + event(item.kind, item.body)
