"""The Prometheus metrics of GET /metrics, with their names and descriptions."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pipeline.recognition.scheduler import SchedulerStatistics
from server import __version__

LAG_EVERY_S = 0.02
_EVENT_LAG = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)
_LOOP_LAG = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1)
_WORD_LAG = (0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 30)
_TRANSLATION_LAG = (0.5, 1, 1.5, 2, 3, 5, 10, 20, 60)
_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200)


class Metrics:
    """Every metric of one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.models = ModelMetrics()
        self.registry.register(self.models)
        gauge, counter, histogram = self._gauge, self._counter, self._histogram
        self._node = gauge("node_info", "1: which node this is", "node", "roles", "version")
        self.requests = counter("requests", "HTTP requests answered", "method", "route", "status")
        self.refused = counter("refused", "Requests refused by a limit", "code")
        self.faults = counter("faults", "Faults that ended one piece of work alone", "what")
        self.connections = gauge("connections", "Open connections")
        self.jobs_waiting = gauge("jobs_waiting", "Jobs in the queue")
        self.jobs_running = gauge("jobs_running", "Jobs held by a worker")
        self.jobs_ended = counter("jobs_ended", "Jobs ended", "state", "error")
        self.job_wait = histogram("job_wait_seconds", "From acceptance to the first claim", _SECONDS)
        self.job_run = histogram("job_run_seconds", "From claim to end", _SECONDS)
        self.audio = counter("audio_seconds", "Audio transcribed", "environment")
        self.leases_lost = counter("leases_lost", "Jobs whose lease ended early")
        self.subscribers = gauge("subscribers", "Open event streams")
        self.event_lag = histogram("event_lag_seconds", "From an event's log entry to its reader's turn", _EVENT_LAG)
        self.websockets = counter("websockets", "WebSockets that ended, by close code or HTTP status", "route", "code")
        self.live_sessions = gauge("live_sessions", "Live sessions in this process")
        self.live_words = counter("live_words", "Final words of live sessions")
        self.live_partials = counter("live_partials", "Partials of live sessions")
        self.live_dropped = counter("live_writers_dropped", "Writers whose connection ended before their audio")
        self.live_takeovers = counter("live_takeovers", "Writers whose silent connection gave way to a new one")
        self.word_lag = histogram(
            "word_lag_seconds", "From the arrival of a word's last sound to the decision that it is final", _WORD_LAG
        )
        self.final_words_changed = counter("final_words_changed", "Final words changed later: must stay 0")
        self.translation_lag = histogram(
            "translation_lag_seconds", "From the arrival of a unit's last sound to its translation", _TRANSLATION_LAG
        )
        self.translations_withdrawn = counter("translations_withdrawn", "Words translated twice live: must stay 0")
        self.speaker_revisions = counter("speaker_revisions", "Times that live words got other speakers")
        self.speakers_found = counter("speakers_found", "Speakers of jobs that ended, by their voices")
        self.speakers_cpu = counter("speakers_cpu_seconds", "Processor time of labelling live speakers")
        self.webhook_backlog = gauge("webhook_backlog", "Deliveries still to be made")
        self.webhook_attempts = counter("webhook_attempts", "Webhook attempts", "outcome")
        self.decoder_memory = gauge("decoder_memory_bytes", "Memory set aside for running decoders")
        self.loop_lag = histogram("loop_lag_seconds", "How late the event loop wakes a sleeper", _LOOP_LAG)

    def _gauge(self, name: str, meaning: str, *labels: str) -> Gauge:
        return Gauge(f"scribewire_{name}", meaning, labels, registry=self.registry)

    def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
        return Counter(f"scribewire_{name}_total", meaning, labels, registry=self.registry)

    def _histogram(self, name: str, meaning: str, buckets: Sequence[float]) -> Histogram:
        return Histogram(f"scribewire_{name}", meaning, buckets=buckets, registry=self.registry)

    def name_node(self, name: str, roles: Collection[str]) -> None:
        """Show the name and the roles of this node on the metrics page."""
        self._node.labels(name, ",".join(sorted(roles)), __version__).set(1)

    async def watch_loop(self, stopping: asyncio.Event) -> None:
        """Measure the event loop's lag, by which every answer is late, until *stopping* is set."""
        loop = asyncio.get_running_loop()
        while not stopping.is_set():
            due = loop.time() + LAG_EVERY_S
            await asyncio.sleep(LAG_EVERY_S)
            self.loop_lag.observe(max(0.0, loop.time() - due))

    def page(self) -> bytes:
        """The registry in Prometheus' text format."""
        return generate_latest(self.registry)


class ModelMetrics(Collector):
    """The work of the models, read from their schedulers when the page is requested."""

    def __init__(self) -> None:
        self.statistics: dict[str, Callable[[], Mapping[str, SchedulerStatistics]]] = {}
        """The statistics of each environment's loaded models, by model."""
        self.speakers_cpu_s: dict[str, Callable[[], float]] = {}  # of labelling each environment's speakers

    def collect(self) -> Iterable[Metric]:
        where = ["environment", "model"]
        kind = [*where, "urgency"]
        windows = CounterMetricFamily("scribewire_model_windows", "Windows of audio recognised", labels=kind)
        audio = CounterMetricFamily("scribewire_model_audio_seconds", "Audio in them", labels=kind)
        waited = CounterMetricFamily("scribewire_model_wait_seconds", "From request to call, all windows", labels=kind)
        busy = CounterMetricFamily("scribewire_model_busy_seconds", "Time of the model that they took", labels=kind)
        calls = CounterMetricFamily("scribewire_model_calls", "Calls, each of one or more windows", labels=where)
        failures = CounterMetricFamily("scribewire_model_failures", "Calls that failed", labels=where)
        waiting = GaugeMetricFamily("scribewire_model_waiting", "Windows that wait for the model", labels=where)
        utilisation = GaugeMetricFamily("scribewire_model_utilisation", "Share of its time it works", labels=where)
        behind = GaugeMetricFamily(
            "scribewire_model_behind_seconds", "Longest wait of live windows, for all models", labels=["environment"]
        )
        for environment, statistics in self.statistics.items():
            loaded = statistics()
            for model, now in loaded.items():
                labels = [environment, model]
                for urgency, counts in now.work.items():
                    windows.add_metric([*labels, urgency.name.lower()], counts.windows)
                    audio.add_metric([*labels, urgency.name.lower()], counts.audio_s)
                    waited.add_metric([*labels, urgency.name.lower()], counts.waited_s)
                    busy.add_metric([*labels, urgency.name.lower()], counts.busy_s)
                calls.add_metric(labels, now.calls)
                failures.add_metric(labels, now.failures)
                waiting.add_metric(labels, now.waiting)
                utilisation.add_metric(labels, now.utilisation)
            behind.add_metric([environment], max((now.live_wait_s for now in loaded.values()), default=0.0))
        listening = CounterMetricFamily(
            "scribewire_speakers_model_seconds",
            "Processor time of the speaker models, files and live",
            labels=["environment"],
        )
        for environment, cpu_s in self.speakers_cpu_s.items():
            listening.add_metric([environment], cpu_s())
        return [windows, audio, waited, busy, calls, failures, waiting, utilisation, behind, listening]
