"""Tests of tokens.py: counts of texts, rank files, and guesses without them."""

import gzip
from importlib import metadata
from pathlib import Path

import pytest
import tiktoken
import tiktoken_ext.openai_public
from hypothesis import example, given, settings
from hypothesis import strategies as st

from estimator.tokens import _RANKS, CL100K, O200K, BadRankFile, TokenCounter, guess_tokens, pieces

PUBLISHED = Path(str(metadata.distribution("bpe-openai").locate_file("bpe_openai/data")))


def test_hello_world_is_four_tokens(counter):
    found = counter.count("Hello, world!")
    assert (found.tokens, found.exact, found.non_ascii_share) == (4, True, 0.0)


def test_special_tokens_count_as_the_text_they_are(counter):
    """encode() of tiktoken raises here, and as one special token the count would be 1."""
    assert counter.count("<|endoftext|>").tokens == 7
    assert counter.count("<|endofprompt|>" * 10, CL100K).tokens > 10


@pytest.mark.parametrize("unit", ["\n", "a", "!", "1", "中", "😀", "'s", "a\u0301", " \n", "Aa", "\t\r\n"])
def test_no_run_of_one_thing_is_too_long(counter, unit):
    found = counter.count(unit * (300_000 // len(unit)))
    assert found.exact
    assert found.tokens > 0


def test_the_share_of_non_ascii_counts_characters_not_bytes(counter):
    assert counter.count("ab中文").non_ascii_share == 0.5


@pytest.mark.parametrize("name", [O200K, CL100K])
def test_patterns_and_names_are_tiktokens_own(monkeypatch, name):
    asked: dict[str, str] = {}

    def no_download(url: str, expected_hash: str) -> dict[bytes, int]:
        asked.update(url=url, sha256=expected_hash)
        return {}

    monkeypatch.setattr(tiktoken_ext.openai_public, "load_tiktoken_bpe", no_download)
    theirs = getattr(tiktoken_ext.openai_public, name)()
    assert _RANKS[name].pattern == theirs["pat_str"]
    assert _RANKS[name].sha256 == asked["sha256"]


def test_tiktokens_cache_is_read_where_it_left_its_file(tmp_path):
    import hashlib  # noqa: PLC0415  only this test needs it

    url = f"https://openaipublic.blob.core.windows.net/encodings/{CL100K}.tiktoken"
    assert _RANKS[CL100K].cached_as == hashlib.sha1(url.encode()).hexdigest()
    packed = PUBLISHED / f"{CL100K}.tiktoken.gz"
    (tmp_path / _RANKS[CL100K].cached_as).write_bytes(gzip.decompress(packed.read_bytes()))
    assert TokenCounter(cache_dir=tmp_path, bundled=False).count("Hello, world!", CL100K).exact


@pytest.mark.parametrize("packed", [True, False])
def test_the_operators_folder_is_read_plain_or_packed(tmp_path: Path, packed: bool) -> None:  # noqa: FBT001  a parameter of the test
    source = (PUBLISHED / f"{CL100K}.tiktoken.gz").read_bytes()
    target = tmp_path / f"{CL100K}.tiktoken{'.gz' * packed}"
    target.write_bytes(source if packed else gzip.decompress(source))
    assert TokenCounter(ranks_dir=tmp_path, bundled=False).count("Hello, world!", CL100K).tokens == 4


@pytest.mark.parametrize("name", [f"{CL100K}.tiktoken", f"{CL100K}.tiktoken.gz"])
def test_a_changed_rank_file_in_the_operators_folder_is_an_error(tmp_path, name):
    (tmp_path / name).write_bytes(b"IQ== 0\n")
    with pytest.raises(BadRankFile, match="SHA-256"):
        TokenCounter(ranks_dir=tmp_path).count("hi", CL100K)


def test_a_changed_file_in_tiktokens_cache_is_passed_over(tmp_path):
    (tmp_path / _RANKS[CL100K].cached_as).write_bytes(b"IQ== 0\n")
    assert TokenCounter(cache_dir=tmp_path).count("Hello, world!", CL100K).tokens == 4
    assert not TokenCounter(cache_dir=tmp_path, bundled=False).count("Hello, world!", CL100K).exact


def test_without_any_rank_file_a_count_is_a_guess_and_says_so():
    found = TokenCounter(bundled=False).count("four" * 25 + "中" * 5)
    assert (found.tokens, found.exact) == (25 + 5, False)


@pytest.mark.parametrize(("text", "tokens"), [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("中", 1), ("é", 1)])
def test_the_guess_is_four_characters_or_three_bytes_a_token(text, tokens):
    assert guess_tokens(text) == tokens


@given(st.text(max_size=300), st.integers(1, 50))
def test_pieces_lose_nothing_and_keep_their_bound(text, longest):
    found = list(pieces(text, longest))
    assert "".join(found) == text
    assert all(len(piece) <= longest for piece in found)


words = st.from_regex(r"[A-Za-z]{1,12}[,.]?", fullmatch=True) | st.integers(0, 10**6).map(str)


@settings(max_examples=50)
@given(text=st.lists(words, min_size=30, max_size=80).map(" ".join), name=st.sampled_from([O200K, CL100K]))
@example(text="A AA " * 40, name=O200K)
@example(text="a, " * 60, name=CL100K)
@example(text="1 " * 90, name=O200K)
def test_cutting_prose_into_pieces_does_not_change_its_count(counter, text, name):
    encoding: tiktoken.Encoding | None = counter._encoding(name)
    cut = sum(len(encoding.encode_ordinary(piece)) for piece in pieces(f"{text} ab cd", 100))
    assert cut == len(encoding.encode_ordinary(f"{text} ab cd"))
