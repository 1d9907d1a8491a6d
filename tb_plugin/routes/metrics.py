"""``metrics``"""

from __future__ import annotations

from tb_plugin.answers import Answer, unavailable
from tb_plugin.arguments import Arguments
from tb_plugin.known import Known


def metrics_route(known: Known, arguments: Arguments) -> Answer:
    """Answer what the exporter would serve for the same logdirs."""
    from supervisor_core.metrics.render import choose_format, gzip_accepted  # loads prometheus_client

    view = known.view()
    if view.secs is None:
        reason = " ".join(view.problems) or "The logdir is being read for the first time; scrape again in a second."
        raise unavailable("starting", reason)
    format = choose_format(arguments.header("Accept"))
    gzip = bool(gzip_accepted(arguments.header("Accept-Encoding")))
    body = known.metrics_page.scrape(view, format, gzip=gzip)
    return Answer(body=body, content_type=format.content_type, packed=gzip)
