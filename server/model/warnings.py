"""Every warning that a record or a live reader may get, by its code. Codes never change their meaning.

The reference shows this table, and a test finds every code that the program uses here.
"""

from collections.abc import Mapping

WARNINGS: Mapping[str, str] = {
    # about the request
    "unknown_parameter": "`param` is not a field of this request. It was ignored.",
    "ignored_parameter": "Another field makes `param` useless, such as `max_speakers` without `diarize`.",
    "prompt_shortened": "The prompt is longer than 1,000 characters; only its end is used.",
    "webhook_disabled": "The webhook's address is no longer called.",
    "endpointing_unavailable": "Turns end by silence, because the model for `semantic` is not installed.",
    "windows_unmeasured": "Live words come late: this model is not measured yet. Run `scribewire doctor --save`.",
    # about the recording
    "other_tracks": "Somebody speaks on an audio track that was not transcribed; the message names it.",
    "undecodable_track": "An audio track cannot be decoded, so others were used.",
    "identical_channels": "Two separate channels are the same; one was transcribed for both.",
    "two_talks": "Different people talk at the same time on the two channels. `channels=separate` transcribes both.",
    "audio_truncated": "The recording ends before its header says, or was cut at the plan's limit.",
    "frames_skipped": "Damaged frames were left out; how many, and their seconds.",
    "gaps_filled": "Gaps were filled with silence, so that words keep their time; how many, and their seconds.",
    "times_shifted": "Time stamps jump ahead by more than 600 s and the stated length; the rest was moved up.",
    "header_found": "A file that was declared as raw audio has a header, which was used.",
    "bytes_not_heard": "Some bytes are no part of a recording that can be decoded; how many, and why.",
    "quiet_input": "The speech is very quiet: below -45 dBFS, or nothing above -60 dBFS for ten live seconds.",
    # about the text
    "language_doubtful": "More than 3 s of speech may be in another language than the text says.",
    "number_words_unknown": "`numerals` or `redact` for a language whose number words are not known.",
    "address_words_unknown": "`redact=email` for a language whose words for `@` and `dot` are not known.",
    "engine_failed": "The recogniser failed at the end of an utterance; an earlier hypothesis was used.",
    "translation_unavailable": "The translator failed for a while; the message says from when to when.",
    "translation_incomplete": "Some seconds have no translation; the message names them.",
    # about a live session
    "recording_failed": "The audio could not be kept.",
    "recording_incomplete": "The audio from before a restart of the server was not kept.",
}
