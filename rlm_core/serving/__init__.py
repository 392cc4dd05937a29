"""An OpenAI-compatible server of the project's adapters, made of mlx-lm's own; see docs/serving.md.

pointers.py     which adapters there are to serve, as the ledger says now
requests.py     what a request may say
generator.py    mlx-lm's batching with our policies: which adapter an answer is written with
handler.py      mlx-lm's HTTP with limits, errors in OpenAI's form, and answers that say who wrote them
server.py       all of it together
"""
