"""The panels of the dashboard by row, with their queries."""

from __future__ import annotations

from panels import GREEN, HERE, ORANGE, RED, Json, graph, heatmap, quantile, quantiles, rate, share, stat, table

MODEL = f'{HERE}, model=~"$model"'
PER_MODEL = "{{model}}/{{version}} {{instance}}"
FAILED = f'{HERE}, code=~"INTERNAL|UNKNOWN|UNAVAILABLE|DATA_LOSS"'
HTTP_FAILED = f'{HERE}, status!~"2.."'
OTHER_FAILED = f'{HERE}, code!="OK"'
OVERLOAD = f'{HERE}, reason=~"QUEUE_FULL|TOO_MANY_CALLS|WONT_FINISH|QUOTA_EXCEEDED"'
SERVED = f'{HERE}, outcome="served"'  # refused calls end at once and would hide how long the others take
TRANSLATE = f'{SERVED}, method="Translate"'
TEXTS_FULL = f"max(lingon_queue_depth{{{MODEL}}} / lingon_queue_limit{{{MODEL}}})"
TOKENS_FULL = f"max(lingon_queue_tokens{{{MODEL}}} / lingon_queue_tokens_limit{{{MODEL}}})"
LATENCY_STEPS = [(None, GREEN), (0.5, ORANGE), (2, RED)]
ROWS: dict[str, list[Json]] = {
    "Overview": [
        stat("Ready servers", f"sum(lingon_ready{{{HERE}}}) or vector(0)", steps=[(None, RED), (1, GREEN)]),
        stat("Calls", f"sum({rate('lingon_requests_total')})", unit="reqps"),
        stat("Texts", f"sum({rate('lingon_texts_total')})", unit="cps"),
        stat(
            "Failed texts",
            share(f"sum({rate('lingon_texts_total', FAILED)})", f"sum({rate('lingon_texts_total')})"),
            unit="percentunit",
            steps=[(None, GREEN), (0.001, ORANGE), (0.01, RED)],
            about="Codes INTERNAL, UNKNOWN, UNAVAILABLE and DATA_LOSS. Errors of callers are not counted.",
        ),
        *[
            stat(
                f"Translate, p{q * 100:g}",
                quantile(q, "lingon_request_duration_seconds", TRANSLATE),
                unit="s",
                steps=LATENCY_STEPS,
            )
            for q in (0.5, 0.95, 0.99)
        ],
        stat(
            "Fullest queue",
            f"{TEXTS_FULL} > {TOKENS_FULL} or {TOKENS_FULL}",
            unit="percentunit",
            steps=[(None, GREEN), (0.5, ORANGE), (0.9, RED)],
        ),
    ],
    "Traffic": [
        graph(
            "Calls by method",
            (f"sum by (method) ({rate('lingon_requests_total')}) > 0", "{{method}}"),
            unit="reqps",
            stacked=True,
        ),
        graph(
            "Calls by code",
            (f"sum by (code) ({rate('lingon_requests_total')}) > 0", "{{code}}"),
            unit="reqps",
            stacked=True,
        ),
        graph(
            "Texts by code",
            (f"sum by (code) ({rate('lingon_texts_total')}) > 0", "{{code}}"),
            unit="cps",
            stacked=True,
            about="A text that fails alone is a result of a call with the code OK.",
        ),
        graph(
            "Calls ended before they were read",
            (
                f"clamp_min(sum by (instance) ({rate('lingon_received_calls_total')}) - sum by (instance) "
                f"({rate('lingon_requests_total')}) - sum by (instance) ({rate('lingon_other_requests_total')}), 0)",
                "{{instance}}",
            ),
            unit="reqps",
            about="What is no gRPC, and calls whose caller left or whose deadline passed before the server took them. "
            "Calls whose number in progress grows are part of it.",
        ),
    ],
    "Latency": [
        heatmap("Duration of Translate", "lingon_request_duration_seconds", TRANSLATE, "s"),
        graph(
            "Duration of calls, p99",
            (quantile(0.99, "lingon_request_duration_seconds", SERVED, by="le, method"), "{{method}}"),
            unit="s",
        ),
        graph(
            "Time to first token",
            *quantiles("lingon_time_to_first_token_seconds", MODEL),
            unit="s",
            about="From submission; includes the time in the queue.",
        ),
    ],
    "Queue and refusals": [
        graph("Calls that wait to be read", (f"lingon_waiting_calls{{{HERE}}}", "{{instance}}")),
        graph(
            "Time until a call is read",
            *quantiles("lingon_call_wait_seconds", HERE),
            unit="s",
            about="Of calls that are not refused; above a quarter of the time until its deadline, a call is refused.",
        ),
        graph(
            "Queued sentences and limit",
            (f"lingon_queue_depth{{{MODEL}}}", f"queued {PER_MODEL}"),
            (f"lingon_queue_limit{{{MODEL}}}", f"limit {PER_MODEL}"),
        ),
        graph(
            "Queued tokens and limit",
            (f"lingon_queue_tokens{{{MODEL}}}", f"queued {PER_MODEL}"),
            (f"lingon_queue_tokens_limit{{{MODEL}}}", f"limit {PER_MODEL}"),
        ),
        graph("Queued work", (f"lingon_queue_work_units{{{MODEL}}}", f"units {PER_MODEL}")),
        graph("Time in the queue", *quantiles("lingon_queue_duration_seconds", MODEL), unit="s"),
        graph(
            "Refused calls by reason",
            (f"sum by (reason) ({rate('lingon_rejected_total')}) > 0", "{{reason}}"),
            unit="reqps",
            stacked=True,
        ),
        graph(
            "Share of calls refused for lack of capacity or quota",
            (
                f"sum by (instance) ({rate('lingon_rejected_total', OVERLOAD)})"
                f" / sum by (instance) ({rate('lingon_requests_total')})",
                "{{instance}}",
            ),
            unit="percentunit",
        ),
        graph(
            "In progress",
            (f"sum(lingon_requests_in_flight{{{HERE}}})", "calls"),
            (f"sum(lingon_running_sentences{{{MODEL}}})", "sentences in decoding"),
            (f"sum by (kind) (lingon_open_calls{{{HERE}}})", "open calls, {{kind}}"),
            (f"sum by (kind) (lingon_receiving_calls{{{HERE}}})", "arriving requests, {{kind}}"),
        ),
    ],
    "API keys and certificates": [
        graph(
            "Calls by key and code",
            (f"sum by (key, code) ({rate('lingon_key_requests_total')}) > 0", "{{key}} {{code}}"),
            unit="reqps",
        ),
        graph(
            "Characters by key",
            (f"sum by (key) ({rate('lingon_key_characters_total')}) > 0", "{{key}}"),
            unit="cps",
            stacked=True,
            about="As quotas count them.",
        ),
        graph(
            "Time since the last use of a key",
            (f"time() - max by (key) (lingon_key_last_used_timestamp_seconds{{{HERE}}} > 0)", "{{key}}"),
            unit="s",
            about="Keys that were used since the start of a server.",
        ),
        graph(
            "Unusable files",
            (f"lingon_file_unusable{{{HERE}}}", "{{what}} {{instance}}"),
            maximum=1,
            about="1 while the previous content of a file of keys or certificates is used.",
        ),
        graph(
            "Time until a certificate expires",
            (f"lingon_tls_not_after_timestamp_seconds{{{HERE}}} - time()", "{{what}} {{instance}}"),
            unit="s",
        ),
    ],
    "Engine": [
        graph(
            "Share of live rows",
            (
                f"sum by (model, version) ({rate('lingon_live_rows_total', MODEL)})"
                f" / sum by (model, version) ({rate('lingon_computed_rows_total', MODEL)})",
                "{{model}}/{{version}}",
            ),
            unit="percentunit",
            maximum=1,
            about="Computed rows that belong to a sentence. 1 is best; the rest are free rows of the batch.",
        ),
        heatmap("Live rows per step", "lingon_batch_rows", MODEL, "short"),
        graph(
            "Tokens per second",
            (f"sum({rate('lingon_source_tokens_total', MODEL)})", "source"),
            (f"sum({rate('lingon_target_tokens_total', MODEL)})", "target"),
            unit="cps",
        ),
        graph("Duration of a decoder step", *quantiles("lingon_decoder_step_duration_seconds", MODEL), unit="s"),
        graph("Duration of an encoder run", *quantiles("lingon_encoder_duration_seconds", MODEL), unit="s"),
        graph(
            "Duration of a scorer run",
            *quantiles("lingon_scorer_duration_seconds", MODEL),
            unit="s",
            about="Of Score, and of alignments, which are one more run for each hypothesis.",
        ),
        graph(
            "Pairs and alignments scored",
            (f"sum({rate('lingon_scored_pairs_total', MODEL)})", "pairs and hypotheses"),
            unit="cps",
        ),
        graph(
            "Share of padding in encoded tokens",
            (
                f"1 - sum by (model, version) ({rate('lingon_source_tokens_total', MODEL)})"
                f" / sum by (model, version) ({rate('lingon_padded_tokens_total', MODEL)})",
                "{{model}}/{{version}}",
            ),
            unit="percentunit",
            maximum=1,
        ),
        graph(
            "Sentences by outcome",
            (f"sum by (outcome) ({rate('lingon_sentences_total', MODEL)}) > 0", "{{outcome}}"),
            unit="cps",
            stacked=True,
        ),
        graph(
            "Share of cut translations and of split texts",
            *(
                (
                    f"sum by (model, version) ({rate(name, MODEL)})"
                    f" / sum by (model, version) ({rate('lingon_translated_texts_total', MODEL)})",
                    f"{what} {{{{model}}}}/{{{{version}}}}",
                )
                for what, name in (("cut", "lingon_truncated_total"), ("split", "lingon_split_total"))
            ),
            unit="percentunit",
            about="Of all translated texts.",
        ),
        graph(
            "Suspected translations by reason",
            (
                f"sum by (reason) ({rate('lingon_degenerate_total', MODEL)})"
                f" / ignoring(reason) group_left sum({rate('lingon_translated_texts_total', MODEL)})",
                "{{reason}}",
            ),
            unit="percentunit",
            about="Of all translated texts: what the guard warns of, such as loops and changed numbers.",
        ),
        graph(
            "Keys and values copied between rows",
            (f"sum({rate('lingon_past_copied_bytes_total', MODEL)})", "copied"),
            unit="Bps",
            about="Only beam search copies, and only if the parent of a row changed.",
        ),
    ],
    "Health": [
        graph("Ready", (f"lingon_ready{{{HERE}}}", "{{instance}}"), maximum=1),
        graph(
            "Calls of other services",
            (f"sum({rate('lingon_other_requests_total')})", "all"),
            (f"sum({rate('lingon_other_requests_total', OTHER_FAILED)})", "not OK"),
            unit="reqps",
            about="Health checks, reflection, unknown methods, and the admin port.",
        ),
        graph(
            "Engine failures",
            (
                f"sum by (instance, model, cause) (increase(lingon_engine_restarts_total{{{MODEL}}}[1m]))",
                "{{cause}} {{model}} {{instance}}",
            ),
        ),
        graph(
            "Process restarts",
            (f'changes(process_start_time_seconds{{job="lingon", {HERE}}}[5m])', "{{instance}}"),
        ),
        graph(
            "Event loop lag, p99",
            (quantile(0.99, "lingon_event_loop_lag_seconds", by="le, instance"), "{{instance}}"),
            unit="s",
        ),
        graph(
            "Fallback to the CPU",
            (f"lingon_provider_fallback{{{MODEL}}}", PER_MODEL),
            maximum=1,
            about="1 if a model runs on the CPU although its bundle has graphs for a GPU and the machine has a GPU.",
        ),
    ],
    "Model changes": [
        graph(
            "Changes by outcome",
            (f"sum by (outcome) (increase(lingon_model_changes_total{{{HERE}}}[$__rate_interval]))", "{{outcome}}"),
        ),
        graph(
            "Models to load and phase of loading",
            (f"lingon_models_to_load{{{HERE}}}", "to load {{instance}}"),
            (f"lingon_model_load_phase{{{MODEL}}}", f"{{{{phase}}}} {PER_MODEL}"),
            about="The line of a phase is 1 while it is under way.",
        ),
        graph(
            "Versions left out",
            (f"lingon_versions_left_out{{{HERE}}}", "{{instance}}"),
            about="Versions that were not whole at the start, so that a lower one is served; the log has the reasons.",
        ),
        graph(
            "Duration of loading by phase",
            (f"lingon_model_load_phase_duration_seconds{{{MODEL}}}", f"{{{{phase}}}} {PER_MODEL}"),
            (f"lingon_model_load_duration_seconds{{{MODEL}}}", f"all {PER_MODEL}"),
            unit="s",
            about="Of each served model, when it was loaded; so far for a phase that is under way.",
        ),
    ],
    "Memory and processor": [
        graph(
            "Memory of decoder states and graphs",
            (f"lingon_state_bytes{{{MODEL}}}", f"states {PER_MODEL}"),
            (f"lingon_graph_bytes{{{MODEL}}}", f"graphs {PER_MODEL}"),
            unit="bytes",
            about="On a graphics card, if the model runs there.",
        ),
        graph(
            "Row limit",
            (f"lingon_row_limit{{{MODEL}}}", PER_MODEL),
            about="Rows that are decoded together at most: max_rows, or less after a lack of memory.",
        ),
        graph(
            "Resident memory",
            (f'process_resident_memory_bytes{{job="lingon", {HERE}}}', "{{instance}}"),
            (f"lingon_memory_need_bytes{{{HERE}}}", "may need {{instance}}"),
            (f"lingon_memory_limit_bytes{{{HERE}}}", "limit {{instance}}"),
            unit="bytes",
            about="What a server may need follows from its models and limits. A limit of 0 is none.",
        ),
        graph(
            "Cores in use",
            (rate("process_cpu_seconds_total", f'job="lingon", {HERE}'), "{{instance}}"),
        ),
    ],
    "HTTP": [
        graph(
            "Requests by API",
            (f"sum by (api) ({rate('lingon_http_requests_total')}) > 0", "{{api}}"),
            unit="reqps",
            stacked=True,
            about="Empty without --http-port. Each request is a call of the gRPC service too, and counts there.",
        ),
        graph(
            "Requests with errors by status",
            (f"sum by (api, status) ({rate('lingon_http_requests_total', HTTP_FAILED)}) > 0", "{{api}} {{status}}"),
            unit="reqps",
        ),
        graph(
            "Latency of requests, p99",
            (quantile(0.99, "lingon_http_request_duration_seconds", by="le, api"), "{{api}}"),
            unit="s",
        ),
        graph(
            "Connections and open requests",
            (f"lingon_http_connections{{{HERE}}}", "connections {{instance}}"),
            (f"lingon_http_requests_in_flight{{{HERE}}}", "open {{instance}}"),
        ),
    ],
    "Graphics cards": [
        graph(
            "Memory of the card",
            ("DCGM_FI_DEV_FB_USED * 1048576", "used GPU {{gpu}} {{Hostname}}"),
            ("(DCGM_FI_DEV_FB_USED + DCGM_FI_DEV_FB_FREE) * 1048576", "all GPU {{gpu}} {{Hostname}}"),
            unit="bytes",
            about="Empty without dcgm-exporter: --profile gpu-metrics of compose.yaml, or that of the cluster.",
        ),
        graph(
            "Share of time in which the card computes",
            ("DCGM_FI_DEV_GPU_UTIL / 100", "GPU {{gpu}} {{Hostname}}"),
            unit="percentunit",
            maximum=1,
            about="Of the time in which at least one kernel ran; how much of the card a kernel uses does not count.",
        ),
        graph(
            "Power and clock of the card",
            ("DCGM_FI_DEV_POWER_USAGE", "W GPU {{gpu}} {{Hostname}}"),
            ("DCGM_FI_DEV_SM_CLOCK", "MHz GPU {{gpu}} {{Hostname}}"),
            about="A clock that falls under load is lowered for heat or power.",
        ),
    ],
    "Models and servers": [
        table("Models", 16, f"lingon_model_info{{{MODEL}}}"),
        table("Servers", 8, f"lingon_build_info{{{HERE}}}"),
    ],
}
