"""Estimates what a prompt will cost before it is run, for many models: from prompt to tokens to calls to money.

estimator = Estimator()
request = parse_request({"prompt": "...", "models": ["gpt-6.2-sol"], "agent_turns": 5})
answer = estimator.estimate(request, now=now, estimate_id=estimate_id(now, entropy))
"""

from estimator.answer import Estimator, estimate_id
from estimator.request import (
    EstimateError,
    EstimateRequest,
    Fault,
    InvalidRequest,
    PromptTooLong,
    UnknownModels,
    parse_query,
    parse_request,
)

__all__ = [
    "EstimateError",
    "EstimateRequest",
    "Estimator",
    "Fault",
    "InvalidRequest",
    "PromptTooLong",
    "UnknownModels",
    "estimate_id",
    "parse_query",
    "parse_request",
]
