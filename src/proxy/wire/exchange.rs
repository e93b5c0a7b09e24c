//! One request on the wire lane: the pipeline's steps, and the tries.

use lockgate_plugin::Phase;

use super::ask::Failure;
use super::buffers;
use super::connect::{Linked, park, timeouts};
use super::relay::Relay;
use super::tunnel::Tunnel;
use super::upload::Upload;
use super::views::WireResp;
use super::{Client, Wire};
use crate::link::Link;
use crate::proxy::core::{Core, Counted};
use crate::proxy::fault::{Fault, FaultKind, Stop};
use crate::proxy::head;
use crate::proxy::local::{self, Local};
use crate::proxy::pipeline::Exchange;
use crate::proxy::request_head::{BodyLength, Head};

/// What becomes of the connection after a request.
pub enum Next {
    /// The next request may come.
    Keep,
    /// It is closed. `true`: after a whole answer, which a TLS client is to be told.
    Close(bool),
    /// The general lane carries this request; no plugin has run.
    General(Box<Exchange>),
}

/// The answer that the client was shown, for the log.
pub(super) enum Shown {
    /// None.
    Nothing,
    /// The upstream's, with this status, in the client's response buffer.
    Upstream(u16),
    /// The gateway's own.
    Local(Box<Local>),
}

/// Everything a request on this lane works with.
pub(super) struct Run<'a> {
    pub core: &'a Core,
    pub wire: &'a Wire,
    pub stream: &'a mut Link,
    pub client: &'a mut Client,
    pub head: &'a Head,
    /// Whether it asks for another protocol, and the route allows that.
    pub upgrade: bool,
    pub upload: Upload,
    pub shown: Shown,
    /// Whether the client's connection may carry another request.
    pub persistent: bool,
    /// Whether the client got a whole answer.
    pub whole: bool,
    /// Whether a client that is still sending is given time to read its answer.
    pub lingers: bool,
    /// The upstream connection, when it can carry another request.
    pub reusable: Option<Linked>,
}

/// Carries one request. With `only_upgrades`, what is no upgrade goes to the general lane.
pub async fn serve(
    wire: &Wire,
    only_upgrades: bool,
    stream: &mut Link,
    client: &mut Client,
    head: &Head,
) -> Next {
    let core = &*wire.core;
    let (mut exchange, begun) = Exchange::begin(core, client.conn.clone(), &client.req(head));
    exchange.work.conn_requests = client.requests;
    let found = match begun {
        Ok(()) if exchange.match_reads_body() && head.body != BodyLength::None => {
            return Next::General(exchange);
        }
        Ok(()) => exchange.find(core, &client.req(head)),
        bad => bad,
    };
    let reads_body = head.body != BodyLength::None && exchange.plugins_read_body();
    let upgrade = head.websocket && exchange.allows_upgrade();
    let general = reads_body || only_upgrades || exchange.general_because().is_some();
    if found.is_ok() && general && !upgrade {
        return Next::General(exchange);
    }
    let counted = Counted::request(&core.stats);
    let mut run = Run {
        core,
        wire,
        stream,
        client,
        head,
        upgrade,
        upload: Upload::new(head.body, head.len, core.limits.max_body, head.expects),
        shown: Shown::Nothing,
        persistent: head.persistent && !core.limits.keepalive.is_zero(),
        whole: false,
        lingers: true,
        reusable: None,
    };
    run.carry(&mut exchange, found).await;
    let Run {
        mut upload,
        shown,
        persistent,
        client,
        reusable,
        whole,
        ..
    } = run;
    exchange.work.received_body = upload.received;
    let req = client.req(head);
    match &shown {
        Shown::Nothing => exchange.finish(core, &req, None),
        Shown::Upstream(status) => {
            let resp = WireResp::new(&client.resp, &client.resp_fields, *status);
            exchange.finish(core, &req, Some(&resp));
        }
        Shown::Local(local) => exchange.finish(core, &req, Some(&**local)),
    }
    if let Some(linked) = reusable {
        park(wire, &exchange, linked);
    }
    client.ended = exchange.work.finished;
    drop(counted);
    buffers::give_back(&mut upload.out);
    client.done_with(upload.used());
    if persistent && upload.is_read() {
        Next::Keep
    } else {
        Next::Close(whole)
    }
}

impl Run<'_> {
    async fn carry(&mut self, exchange: &mut Exchange, found: Result<(), Fault>) {
        let decided = match found {
            Ok(()) => self.decide(exchange).await,
            Err(fault) => Err(fault.into()),
        };
        let stop = match decided {
            Ok(()) => match self.tries(exchange).await {
                Ok(()) => return,
                Err(stop) => stop,
            },
            Err(stop) => stop,
        };
        match stop {
            Stop::Reply(reply) => self.answer(exchange, reply).await,
            Stop::Fault(fault) if fault.kind == FaultKind::ClientGone => {
                self.persistent = false;
                exchange.work.reason = fault.kind.reason();
                exchange.work.status = fault.kind.status();
            }
            Stop::Fault(fault) => {
                let closes = [
                    FaultKind::BodyTooLarge,
                    FaultKind::BadRequest,
                    FaultKind::SlowBody,
                ];
                self.persistent &= !closes.contains(&fault.kind);
                // Whoever is that slow is not waited for once more.
                self.lingers = fault.kind != FaultKind::SlowBody;
                self.answer(exchange, local::reply_to(&fault)).await;
            }
        }
    }

    async fn decide(&mut self, exchange: &mut Exchange) -> Result<(), Stop> {
        let limit = self.core.limits.max_body;
        if matches!(self.head.body, BodyLength::Exact(length) if limit > 0 && length > limit) {
            return Err(FaultKind::BodyTooLarge.into());
        }
        let req = self.client.req(self.head);
        exchange.decide(&req).await?;
        exchange.choose(&req).await
    }

    /// Tries nodes until one answers; then passes its answer on.
    async fn tries(&mut self, exchange: &mut Exchange) -> Result<(), Stop> {
        let mut fresh = false;
        loop {
            let timeouts = timeouts(exchange);
            let mut linked = match self.connect(exchange, &timeouts, fresh).await {
                Ok(linked) => linked,
                Err(fault) => {
                    if !exchange.note_failure(self.core, fault.kind, &fault.cause) {
                        return Err(fault.into());
                    }
                    self.next_node(exchange).await?;
                    fresh = false;
                    continue;
                }
            };
            self.write_request(exchange);
            let mut window = Vec::new();
            let started = exchange.work.attempts.last().map(|attempt| attempt.started);
            let at_once = linked.reused && !exchange.filters(Phase::BeforeProxy);
            let started = started.filter(|_| at_once);
            let asked = self
                .ask(&mut linked.link, &timeouts, started, &mut window)
                .await;
            let failure = match asked {
                Ok(resp) if resp.status == 101 => {
                    Tunnel::new(linked, window, resp, timeouts)
                        .run(self, exchange)
                        .await;
                    return Ok(());
                }
                Ok(resp) => {
                    let relay = Relay::new(linked, window, resp, timeouts);
                    relay.run(self, exchange).await;
                    return Ok(());
                }
                Err(failure) => failure,
            };
            buffers::give_back(&mut window);
            let (fault, closed) = match failure {
                Failure::Client(fault) => return Err(fault.into()),
                Failure::Upstream { fault, closed } => (fault, closed),
            };
            // A request may be sent twice only if that changes nothing, and if it is still here.
            let again = exchange
                .is_idempotent(&self.client.req(self.head))
                .then(|| self.upload.again(self.head.body))
                .flatten();
            let Some(mut again) = again else {
                exchange.note_failure(self.core, fault.kind, &fault.cause);
                return Err(fault.into());
            };
            // A kept connection that the node closed in the same moment says nothing about the
            // node: it is asked again, once, on a connection of its own.
            if linked.reused && closed && !fresh {
                fresh = true;
            } else if exchange.note_failure(self.core, fault.kind, &fault.cause) {
                self.next_node(exchange).await?;
                fresh = false;
            } else {
                return Err(fault.into());
            }
            again.out = std::mem::take(&mut self.upload.out);
            self.upload = again;
        }
    }

    async fn next_node(&mut self, exchange: &mut Exchange) -> Result<(), Fault> {
        exchange.retry().await?;
        head::settle_host(exchange);
        Ok(())
    }
}
