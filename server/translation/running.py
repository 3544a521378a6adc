"""Runs the translations of a job beside its recognition: words of its timeline in, entries of the timeline out."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial

from pipeline.audio import seconds
from pipeline.timeline import Entry, FinalizedUpTo, Notice, SegmentEnd, Translation, TurnEnd, Words
from pipeline.translation.target import GivenUp, Happened, Outage, Target, Translated
from pipeline.translation.units import NumberedWord
from server.metrics import Metrics
from server.model.orders import Order
from server.translation.translations import as_written

UNAVAILABLE, INCOMPLETE = "translation_unavailable", "translation_incomplete"


class Translations:
    """The translations of one job. run() works until finish() was called and everything is translated."""

    def __init__(
        self,
        order: Order,
        targets: Sequence[Target],
        append: Callable[[Entry], Awaitable[None]],
        metrics: Metrics,
    ) -> None:
        """*append* adds an entry to the job's timeline."""
        self.targets = targets
        self._order = order
        self._append = append
        self._metrics = metrics
        self._outages: dict[tuple[str, int], str] = {}  # by language and beginning
        self._shown: defaultdict[tuple[str, int | None], set[int]] = defaultdict(set)  # the numbers of words

    @property
    def warnings(self) -> list[Mapping[str, str]]:
        """When there were no translations, for the job's record."""
        return [{"code": UNAVAILABLE, "message": "; ".join(self._outages.values())}] if self._outages else []

    def take(self, entries: Iterable[Entry], decided: Mapping[int | None, int]) -> None:
        """Take the next entries of the timeline, after they were stored.

        *decided*: by channel, the position before which everything is decided.
        """
        for entry in entries:
            self._take(entry)
        for channel, position in decided.items():
            for target in self.targets:
                target.reach(channel, position)

    @property
    def begins(self) -> int | None:
        """The position of the first word without a translation; None: all have one."""
        return min((begins for target in self.targets if (begins := target.begins) is not None), default=None)

    def _take(self, entry: Entry) -> None:
        match entry:
            case Words():
                now = asyncio.get_running_loop().time()
                words = [
                    NumberedWord(
                        number,
                        one.word,
                        entry.channel,
                        heard_at=None if one.lag_ms is None else now - one.lag_ms / 1000,
                        final_at=now,
                    )
                    for number, one in enumerate(entry.words, entry.first)
                ]
                for target in self.targets:
                    target.add(as_written(words, self._order))
            case SegmentEnd(forced=forced, channel=channel) if not forced:
                self._close(channel)
            case TurnEnd(channel=channel) | FinalizedUpTo(channel=channel):
                self._close(channel)
            case _:
                pass

    def finish(self) -> None:
        """Note that no further word comes."""
        for target in self.targets:
            target.finish()

    async def run(self) -> None:
        """Translate until finish() was called and nothing waits. Raises what *append* raises, in a group."""
        async with asyncio.TaskGroup() as tasks:
            for target in self.targets:
                write = partial(self._write, target.options.language)
                tasks.create_task(target.run(write), name=f"translate into {target.options.language}")

    def _close(self, channel: int | None) -> None:
        for target in self.targets:
            target.close(channel)

    async def _write(self, language: str, happened: Happened) -> None:
        match happened:
            case Translated(unit, text, lag_s):
                lag_ms = None if lag_s is None else round(1000 * lag_s)
                entry = Translation(language, unit.first, unit.last, unit.start, unit.end, text, unit.channel, lag_ms)
                shown, numbers = self._shown[language, unit.channel], {one.number for one in unit.words}
                self._metrics.translations_withdrawn.inc(len(shown & numbers))
                shown |= numbers
                if lag_s is not None:
                    self._metrics.translation_lag.observe(lag_s)
                await self._append(entry)
            case GivenUp(unit):
                await self._append(Translation(language, unit.first, unit.last, unit.start, unit.end, "", unit.channel))
            case Outage(since, None):
                message = f"no translation into {language} since {seconds(since):.1f} s"
                self._outages[language, since] = message
                await self._append(Notice(UNAVAILABLE, message))
            case Outage(since, until):
                span = f"{seconds(since):.1f} to {seconds(until or 0):.1f} s"
                message = f"translations into {language} were late or missing from {span}"
                self._outages[language, since] = message
                await self._append(Notice(UNAVAILABLE, message))
