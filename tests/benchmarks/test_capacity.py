"""Tests of the computation of large installations: known demands, and what breaks first."""

from dataclasses import replace

from benchmarks.capacity import PEAK, Costs, Wish, bottlenecks, costs, demand, hardware_for

WISH = Wish(audio_hours=24.0, sessions=100, node_cores=10, database_cores=10)
COST = Costs(job=0.004, chunk=0.002, live_second=0.001, audio_s_a_core_s=40.0, sessions_a_core=4.0, event_bytes=250.0)


def test_a_day_with_an_hour_of_audio_each_hour_is_a_second_a_second_times_the_peak():
    needed = {name: line["value"] for name, line in demand(WISH, COST).items()}
    assert needed["audio of files, s/s"] == PEAK
    assert needed["worker nodes"] == 1 + 1
    assert needed["live nodes"] == 4 + 1, "100 / 4 / 0.7 = 36 cores"
    assert needed["rows/s"] == round((PEAK + 100) * 2.5)
    assert needed["database cores"] == 0.1


def test_every_line_says_how_it_was_computed():
    assert all(line["how"] for line in demand(WISH, COST).values())


def test_what_breaks_first_comes_first_and_has_a_remedy():
    large = replace(WISH, audio_hours=1_000_000.0, sessions=10_000, database_cores=64)
    rows = bottlenecks(large, demand(large, COST), COST)
    shares = [row["share"] for row in rows]
    assert shares == sorted(shares, reverse=True)
    assert all(row["remedy"] for row in rows)
    slow = replace(COST, live_second=1.0)
    assert hardware_for(large, slow)["breaks_first"][0]["name"] == "processor of the database"


def test_the_costs_are_those_of_the_results():
    store = {
        "database_cpu_ms submits": 1.0,
        "database_cpu_ms claims": 2.0,
        "database_cpu_ms finishes": 3.0,
        "database_cpu_ms chunks": 4.0,
        "database_cpu_ms a live second": 5.0,
        "bytes an event": 270,
    }
    throughput = {"systems": {"ours": {"audio_s_per_cpu_s": 40.0}}}
    crowd = {"together": {"sessions": 8}, "machine": {"cores": 2}}
    assert costs({"stores": {"cluster": store}}, throughput, crowd) == Costs(
        job=0.006, chunk=0.004, live_second=0.005, audio_s_a_core_s=40.0, sessions_a_core=4.0, event_bytes=270
    )
