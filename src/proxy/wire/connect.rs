//! Connections to the chosen node: taken, made, parked.

use std::sync::Arc;
use std::time::Duration;

use pingora_core::ErrorType;

use super::Wire;
use super::exchange::Run;
use crate::link::Link;
use crate::proxy::fault::{Fault, FaultKind};
use crate::proxy::head;
use crate::proxy::pipeline::Exchange;
use crate::upstream::{Connector, Keep, NoLink, Ready, Reused, Timeouts, limit_peer};

/// A connection to the chosen node, with what is needed to park it.
pub(super) struct Linked {
    pub link: Link,
    sni: String,
    carried: u32,
    pub reused: bool,
}

impl Run<'_> {
    /// A connection to the chosen node: an idle one, unless it has to be fresh.
    pub(super) async fn connect(
        &mut self,
        exchange: &mut Exchange,
        timeouts: &Timeouts,
        fresh: bool,
    ) -> Result<Linked, Fault> {
        let Some(chosen) = &exchange.upstream else {
            return Err(FaultKind::Internal.into());
        };
        let ready = Arc::clone(&chosen.ready);
        let sni = if ready.peer.is_tls() {
            let req = self.client.req(self.head);
            let host = head::upstream_host(&exchange.work, &req);
            lockgate_plugin::target::host_of(host).into_owned()
        } else {
            String::new()
        };
        let kept = if fresh { None } else { ready.idle.take(&sni) };
        let (linked, took) = match kept {
            Some(Reused { link, carried }) => {
                let reused = true;
                let linked = Linked {
                    link,
                    sni,
                    carried,
                    reused,
                };
                (linked, Duration::ZERO)
            }
            None => {
                let started = std::time::Instant::now();
                let link = dial(self.wire, &ready, &sni, timeouts).await?;
                let linked = Linked {
                    link,
                    sni,
                    carried: 0,
                    reused: false,
                };
                (linked, started.elapsed())
            }
        };
        if let Some(attempt) = exchange.work.attempts.last_mut() {
            attempt.connect = Some(took);
        }
        Ok(linked)
    }
}

/// Parks the connection to the node for the next request.
pub(super) fn park(wire: &Wire, exchange: &Exchange, linked: Linked) {
    let (Some(chosen), Some(now)) = (&exchange.upstream, exchange.work.finished) else {
        return;
    };
    let carried = linked.carried + 1;
    if carried >= wire.carries {
        return;
    }
    let keep = Keep {
        size: wire.idle,
        idle: chosen.shape.spec.keepalive.idle,
        now,
    };
    let link = Reused {
        link: linked.link,
        carried,
    };
    chosen
        .ready
        .idle
        .put(&linked.sni, link, keep, &wire.sweeper);
}

/// The time limits of the route, or of its upstream.
pub(super) fn timeouts(exchange: &Exchange) -> Timeouts {
    let own = exchange.route().and_then(|route| route.timeouts);
    let shape = exchange.upstream.as_ref().map(|chosen| &chosen.shape);
    own.or(shape.map(|shape| shape.spec.timeouts))
        .unwrap_or_default()
}

async fn dial(wire: &Wire, ready: &Ready, sni: &str, timeouts: &Timeouts) -> Result<Link, Fault> {
    let link = if ready.peer.is_tls() {
        let mut peer = ready.peer.clone();
        sni.clone_into(&mut peer.sni);
        limit_peer(&mut peer, timeouts);
        Box::pin(wire.connector.tls(&peer)).await
    } else {
        Box::pin(Connector::plain(ready.addr, timeouts.connect)).await
    };
    link.map_err(|e| {
        let kind = match &e {
            NoLink::Timeout(_) => FaultKind::ConnectTimeout,
            NoLink::Refused(_) => FaultKind::Connect,
            NoLink::Tls(e) => match e.etype() {
                ErrorType::ConnectTimedout | ErrorType::TLSHandshakeTimedout => {
                    FaultKind::ConnectTimeout
                }
                _ => FaultKind::Connect,
            },
        };
        Fault::new(kind, e.to_string())
    })
}
