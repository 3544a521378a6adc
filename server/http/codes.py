"""Every error code that a client may get, with its HTTP status and title. Codes never change their meaning."""

from collections.abc import Mapping

CODES: Mapping[str, tuple[int, str]] = {
    # syntax
    "invalid_request": (400, "Invalid request"),
    "invalid_json": (400, "Invalid JSON"),
    "invalid_multipart": (400, "Invalid multipart body"),
    "invalid_cursor": (400, "Invalid cursor"),
    "invalid_last_event_id": (400, "Invalid Last-Event-ID"),
    "invalid_idempotency_key": (400, "Invalid Idempotency-Key"),
    "invalid_message": (400, "Invalid message"),
    "input_audio_buffer_commit_empty": (400, "Nothing to commit"),
    # authentication and permission
    "missing_credentials": (401, "Missing credentials"),
    "invalid_key": (401, "Invalid API key"),
    "invalid_token": (401, "Invalid token"),
    "environment_mismatch": (403, "Wrong environment"),
    "insufficient_scope": (403, "Insufficient scope"),
    "plan_feature": (403, "Not part of this plan"),
    "invalid_signature": (403, "Invalid signature"),
    "url_expired": (403, "Link expired"),
    "signup_closed": (403, "Sign-up is closed"),
    "origin_not_allowed": (403, "Origin not allowed"),
    # unknown places
    "not_found": (404, "Not found"),
    "job_not_found": (404, "Job not found"),
    "output_not_found": (404, "Output not found"),
    "key_not_found": (404, "Key not found"),
    "channel_not_found": (404, "Channel not found"),
    "delivery_not_found": (404, "Delivery not found"),
    "model_not_found": (404, "Model not found"),
    "method_not_allowed": (405, "Method not allowed"),
    "not_acceptable": (406, "Not acceptable"),
    # not in this state
    "ingest_idle": (408, "No audio arrived"),
    "request_timeout": (408, "The body stopped arriving"),
    "job_active": (409, "Job is still active"),
    "job_not_cancelable": (409, "Job can no longer be canceled"),
    "job_not_completed": (409, "Job is not completed"),
    "ingest_busy": (409, "Another writer is connected"),
    "ingest_finished": (409, "The live session takes no more audio"),
    "idempotency_in_progress": (409, "First request still in progress"),
    "not_correctable": (409, "Job cannot be corrected"),
    "not_revertible": (409, "Revision cannot be taken back"),
    "revision_changed": (412, "Another revision came first"),
    # too large
    "payload_too_large": (413, "Payload too large"),
    "audio_too_long": (413, "Audio too long"),
    "prompt_too_long": (413, "Prompt too long"),
    "uri_too_long": (414, "URI too long"),
    "upgrade_required": (426, "Upgrade required"),
    "headers_too_large": (431, "Request header fields too large"),
    # wrong kind
    "unsupported_media_type": (415, "Unsupported media type"),
    "unsupported_encoding": (415, "Unsupported content encoding"),
    "unsupported_audio_format": (415, "Unsupported audio format"),
    "range_not_satisfiable": (416, "Range not satisfiable"),
    # well-formed but unusable
    "missing_input": (422, "Missing input"),
    "ambiguous_input": (422, "Ambiguous input"),
    "empty_file": (422, "Empty file"),
    "invalid_parameter": (422, "Invalid parameter"),
    "not_aligned": (422, "Document does not fit the transcript"),
    "invalid_audio": (422, "Invalid audio"),
    "no_audio_stream": (422, "No audio stream"),
    "url_not_allowed": (422, "URL not allowed"),
    "source_failed": (422, "Source cannot be fetched"),
    "unknown_models": (422, "Unknown models"),
    "idempotency_key_reused": (422, "Idempotency-Key reused"),
    # limits
    "rate_limited": (429, "Too many requests"),
    "quota_exceeded": (429, "Quota exceeded"),
    "concurrency_limited": (429, "Too many active jobs"),
    "too_many_connections": (429, "Too many connections"),
    "audio_too_fast": (429, "Audio too fast"),
    # the server's own troubles
    "internal": (500, "Internal error"),
    "queue_full": (503, "Queue full"),
    "not_ready": (503, "Not ready"),
    "shutting_down": (503, "Shutting down"),
    "disk_full": (503, "Disk full"),
    "engine_error": (503, "Engine unavailable"),
    "engine_timeout": (503, "Engine too slow"),
    "decode_timeout": (422, "Audio could not be decoded in time"),
    "unfinished": (504, "Not finished in time"),
}
"""By code: status and title. A test checks the error table of api.md against it."""

UNDECODABLE = ("unsupported_audio_format", "invalid_audio", "no_audio_stream", "decode_timeout")
"""The codes for files that cannot be decoded."""
