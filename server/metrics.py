"""The Prometheus metrics of GET /metrics. All of them are named and described here."""

import asyncio
from collections.abc import Callable, Collection, Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pipeline.recognition.scheduler import SchedulerStatistics
from server import __version__

LAG_EVERY_S = 0.02
_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200)


class Metrics:
    """Every metric of one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        r = self.registry
        self._models = _Models()
        r.register(self._models)
        self._node = Gauge("scribewire_node_info", "1: which node this is", ["node", "roles", "version"], registry=r)
        self.requests = Counter(
            "scribewire_requests_total", "HTTP requests answered", ["method", "route", "status"], registry=r
        )
        self._requests_of: dict[tuple[str, str, int], Counter] = {}
        self.refused = Counter("scribewire_refused_total", "Requests refused by a limit", ["code"], registry=r)
        self.faults = Counter(
            "scribewire_faults_total", "Faults that ended one piece of work alone", ["what"], registry=r
        )
        self.connections = Gauge("scribewire_connections", "Open connections", registry=r)
        self.jobs_waiting = Gauge("scribewire_jobs_waiting", "Jobs in the queue", registry=r)
        self.jobs_running = Gauge("scribewire_jobs_running", "Jobs held by a worker", registry=r)
        self.jobs_ended = Counter("scribewire_jobs_ended_total", "Jobs ended", ["state", "error"], registry=r)
        self.job_wait = Histogram(
            "scribewire_job_wait_seconds", "From acceptance to the first claim", buckets=_SECONDS, registry=r
        )
        self.job_run = Histogram("scribewire_job_run_seconds", "From claim to end", buckets=_SECONDS, registry=r)
        self.audio = Counter("scribewire_audio_seconds_total", "Audio transcribed", ["environment"], registry=r)
        self.leases_lost = Counter("scribewire_leases_lost_total", "Jobs whose lease ended early", registry=r)
        self.subscribers = Gauge("scribewire_subscribers", "Open event streams", registry=r)
        self.event_lag = Histogram(
            "scribewire_event_lag_seconds",
            "From an event's log entry to its reader's turn",
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5),
            registry=r,
        )
        self.websockets = Counter(
            "scribewire_websockets_total",
            "WebSockets that ended, by close code or HTTP status",
            ["route", "code"],
            registry=r,
        )
        self.live_sessions = Gauge("scribewire_live_sessions", "Live sessions in this process", registry=r)
        self.live_words = Counter("scribewire_live_words_total", "Final words of live sessions", registry=r)
        self.live_partials = Counter("scribewire_live_partials_total", "Partials of live sessions", registry=r)
        self.live_dropped = Counter(
            "scribewire_live_writers_dropped_total", "Writers whose connection ended before their audio", registry=r
        )
        self.live_takeovers = Counter(
            "scribewire_live_takeovers_total", "Writers whose silent connection gave way to a new one", registry=r
        )
        self.word_lag = Histogram(
            "scribewire_word_lag_seconds",
            "From the arrival of a word's last sound to the decision that it is final",
            buckets=(0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 30),
            registry=r,
        )
        self.final_words_changed = Counter(
            "scribewire_final_words_changed_total", "Final words changed later: must stay 0", registry=r
        )
        self.speaker_revisions = Counter(
            "scribewire_speaker_revisions_total", "Times that live words got other speakers", registry=r
        )
        self.speakers_found = Counter(
            "scribewire_speakers_found_total", "Speakers of live sessions that ended", registry=r
        )
        self.speakers_cpu = Counter(
            "scribewire_speakers_cpu_seconds_total", "Processor time that telling live speakers apart took", registry=r
        )
        self.webhook_backlog = Gauge("scribewire_webhook_backlog", "Deliveries still to be made", registry=r)
        self.webhook_attempts = Counter(
            "scribewire_webhook_attempts_total", "Webhook attempts", ["outcome"], registry=r
        )
        self.decoder_memory = Gauge(
            "scribewire_decoder_memory_bytes", "Memory set aside for running decoders", registry=r
        )
        self.loop_lag = Histogram(
            "scribewire_loop_lag_seconds",
            "How much too late the event loop wakes a sleeper",
            buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1),
            registry=r,
        )

    def name_node(self, name: str, roles: Collection[str]) -> None:
        """Show on the page which node of a cluster this is, and what it does."""
        self._node.labels(name, ",".join(sorted(roles)), __version__).set(1)

    def watch_model(self, environment: str, statistics: Callable[[], SchedulerStatistics]) -> None:
        """Show the *statistics* of the model of *environment* on the page."""
        self._models.models[environment] = statistics

    def count_request(self, method: str, route: str, status: int) -> None:
        """Count an answer. The counter of each kind is looked up only once, which costs more than the counting."""
        kind = (method, route, status)
        counter = self._requests_of.get(kind)
        if counter is None:
            counter = self._requests_of[kind] = self.requests.labels(method, route, str(status))
        counter.inc()

    async def watch_loop(self) -> None:
        """Measure the event loop's lag until cancelled. Every answer is late by this much."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LAG_EVERY_S
            await asyncio.sleep(LAG_EVERY_S)
            self.loop_lag.observe(max(0.0, loop.time() - due))

    def page(self) -> bytes:
        """The registry in Prometheus' text format."""
        return generate_latest(self.registry)


class _Models(Collector):
    """What the models have done, read from their schedulers whenever the page is requested."""

    def __init__(self) -> None:
        self.models: dict[str, Callable[[], SchedulerStatistics]] = {}

    def collect(self) -> Iterable[Metric]:
        kind = ["environment", "urgency"]
        windows = CounterMetricFamily("scribewire_model_windows", "Windows of audio heard", labels=kind)
        audio = CounterMetricFamily("scribewire_model_audio_seconds", "Audio in them", labels=kind)
        waited = CounterMetricFamily("scribewire_model_wait_seconds", "From request to call, all windows", labels=kind)
        busy = CounterMetricFamily("scribewire_model_busy_seconds", "Time of the model that they took", labels=kind)
        where = ["environment"]
        calls = CounterMetricFamily("scribewire_model_calls", "Calls, each of one or more windows", labels=where)
        failures = CounterMetricFamily("scribewire_model_failures", "Calls that failed", labels=where)
        waiting = GaugeMetricFamily("scribewire_model_waiting", "Windows that wait for the model", labels=where)
        utilisation = GaugeMetricFamily("scribewire_model_utilisation", "Share of its time it works", labels=where)
        behind = GaugeMetricFamily("scribewire_model_behind_seconds", "Longest wait of live windows", labels=where)
        for environment, statistics in self.models.items():
            now = statistics()
            for urgency, counts in now.work.items():
                labels = [environment, urgency.name.lower()]
                windows.add_metric(labels, counts.windows)
                audio.add_metric(labels, counts.audio_s)
                waited.add_metric(labels, counts.waited_s)
                busy.add_metric(labels, counts.busy_s)
            calls.add_metric([environment], now.calls)
            failures.add_metric([environment], now.failures)
            waiting.add_metric([environment], now.waiting)
            utilisation.add_metric([environment], now.utilisation)
            behind.add_metric([environment], now.behind_s)
        return [windows, audio, waited, busy, calls, failures, waiting, utilisation, behind]
