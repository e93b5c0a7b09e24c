//! A request from its first byte to its log line, in order.
//!
//! This is the one place that knows the order. It does not know which lane
//! carries the request: a lane calls these functions and shows heads through
//! [`ReqView`] and [`RespView`].
//!
//! | step | function |
//! |---|---|
//! | head complete: normal form of the path, client address | [`Exchange::begin`] |
//! | route | [`Exchange::find`] |
//! | rewrite, consumer, access | [`Exchange::decide`] |
//! | node chosen, before_proxy | [`Exchange::choose`] |
//! | another node after a failure | [`Exchange::retry`] |
//! | response head: header_filter | [`Exchange::response_head`] |
//! | response body: body_filter | [`Exchange::response_body`] |
//! | the end: log, metrics | [`Exchange::finish`] |

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lockgate_plugin::request::Attempt;
use lockgate_plugin::var::Lookup;
use lockgate_plugin::{
    Chunk, Conn, Consumers, Ctx, Env, Origin, Phase, Picked, ReqView, RespView, Target as Path,
    Timing, Work,
};

use super::chain;
use super::core::Core;
use super::fault::{Fault, FaultKind, Stop};
use super::locate;
use crate::config::compile::plan::Plan;
use crate::config::snapshot::{Route, Snapshot};
use crate::router::Unseen;
use crate::upstream::{InFlight, NoNode, Ready, Shape, Tried, Upstream, identity};

/// How long a request waits for the first address of a node that was only just configured by name.
const FIRST_RESOLUTION: Duration = Duration::from_secs(2);

/// One request on its way.
pub struct Exchange {
    /// What plugins see and change.
    pub work: Work,
    bound: Bound,
    /// The upstream in use.
    pub upstream: Option<Chosen>,
}

/// What the request is bound to; set between phases, only read during them.
struct Bound {
    snap: Arc<Snapshot>,
    /// Whether the route was looked for.
    found: bool,
    route: Option<Arc<Route>>,
    plan: Option<Arc<Plan>>,
}

/// The upstream and node in use.
pub struct Chosen {
    /// The handle.
    pub upstream: Arc<Upstream>,
    /// Its configuration when the request chose it.
    pub shape: Arc<Shape>,
    /// Where to connect.
    pub ready: Arc<Ready>,
    tried: Tried,
    in_flight: Option<InFlight>,
    deadline: Option<Instant>,
}

/// What plugins reach of the process during one request.
struct RequestEnv<'a>(&'a Snapshot);

impl Env for RequestEnv<'_> {
    fn consumers(&self) -> &dyn Consumers {
        &self.0.consumers
    }
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(tokio::time::sleep(duration))
    }
}

impl Exchange {
    /// The head is complete: takes the snapshot and settles what the request is about.
    ///
    /// # Errors
    /// [`FaultKind::BadRequest`] when the path has no normal form. The exchange is given back even
    /// then: such a request is answered and logged like any other.
    pub fn begin(core: &Core, conn: Conn, req: &dyn ReqView) -> (Box<Exchange>, Result<(), Fault>) {
        let timing = Timing {
            start: Instant::now(),
            wall: std::time::SystemTime::now(),
        };
        let parsed = Path::parse_as(req.target(), &core.match_options);
        let (path, result) = match parsed {
            Ok(path) => (path, Ok(())),
            Err(bad) => (
                Path::default(),
                Err(Fault::new(FaultKind::BadRequest, bad.to_string())),
            ),
        };
        let bound = Bound {
            snap: core.live.snapshot(),
            found: false,
            route: None,
            plan: None,
        };
        // Boxed: it is large, and Pingora moves its context around.
        let mut exchange = Box::new(Exchange {
            work: Work::new(conn, path, timing),
            bound,
            upstream: None,
        });
        core.addresses.settle(&mut exchange.work, req);
        (exchange, result)
    }

    /// Whether finding the route needs the request body.
    pub fn match_reads_body(&self) -> bool {
        self.bound.snap.match_reads_body
    }

    /// Whether a plugin that may run on the route that was found needs the request body.
    pub fn plugins_read_body(&self) -> bool {
        let Bound { snap, route, .. } = &self.bound;
        let global = &snap.global;
        let on_route = |route: &Arc<Route>| {
            let consumer = route.plan.finds_consumer() || global.finds_consumer();
            route.plan.needs_body() || (snap.consumers_read_body && consumer)
        };
        global.needs_body() || route.as_ref().is_some_and(on_route)
    }

    /// Runs rewrite, attaches the consumer's plugins, runs access. The route was looked for with
    /// [`Exchange::find`].
    ///
    /// # Errors
    /// A plugin's answer or a failure; either way the response phases follow.
    pub async fn decide(&mut self, req: &dyn ReqView) -> Result<(), Stop> {
        let route = self.bound.route.clone();
        if let Some(route) = &route {
            locate::may_start(&route.target)?;
        }
        let Exchange { work, bound, .. } = self;
        let snap = Arc::clone(&bound.snap);
        let env = RequestEnv(&snap);
        let own = route.as_ref().map(|route| &*route.plan);
        let mut cx = Ctx::new(req, None, work, &env);

        if snap.global.uses(Phase::Rewrite) {
            chain::run(Phase::Rewrite, &snap.global, own, &mut cx).await?;
        }
        if let Some(own) = own.filter(|own| own.uses(Phase::Rewrite)) {
            chain::run(Phase::Rewrite, own, None, &mut cx).await?; // may find the consumer
        }
        let merged = match (&route, cx.consumer()) {
            (Some(route), Some(found)) => {
                let plugins = snap.consumers.plugins(&found.consumer.username);
                if plugins.is_some_and(|plugins| plugins.missing_group) {
                    return Err(FaultKind::NoPluginConfig.into());
                }
                plugins.and_then(|plugins| route.plan_for(found, plugins))
            }
            _ => None,
        };
        let plan = match &merged {
            Some(merged) => {
                bound.plan = Some(Arc::clone(&merged.plan));
                chain::run(Phase::Rewrite, &merged.added, None, &mut cx).await?;
                Some(&*merged.plan)
            }
            None => own,
        };
        if snap.global.uses(Phase::Access) {
            chain::run(Phase::Access, &snap.global, plan, &mut cx).await?;
        }
        match plan {
            Some(plan) if !plan.uses(Phase::Access) => Ok(()),
            Some(plan) => chain::run(Phase::Access, plan, None, &mut cx).await,
            None => Err(FaultKind::NoRoute.into()),
        }
    }

    /// Whether [`Exchange::find`] has been called.
    pub fn is_found(&self) -> bool {
        self.bound.found
    }

    /// Finds the route. No plugin has run yet: until here a request may change its lane.
    ///
    /// # Errors
    /// When the path cannot be matched.
    pub fn find(&mut self, core: &Core, req: &dyn ReqView) -> Result<(), Fault> {
        let Exchange { work, bound, .. } = self;
        bound.found = true;
        let found = locate::locate(&bound.snap, &core.match_options, work, req, Unseen)
            .map_err(|bad| Fault::new(FaultKind::BadRequest, bad.to_string()))?;
        let Some(found) = found else {
            return Ok(());
        };
        let route = locate::note(work, found);
        bound.plan = Some(Arc::clone(&route.plan));
        bound.route = Some(route);
        Ok(())
    }

    /// Chooses a node and runs before_proxy.
    ///
    /// # Errors
    /// When there is nothing to choose from, or a plugin answers.
    pub async fn choose(&mut self, req: &dyn ReqView) -> Result<(), Stop> {
        let Some(route) = &self.bound.route else {
            return Err(FaultKind::NoRoute.into());
        };
        let upstream = Arc::clone(locate::upstream(&route.target)?);
        let shape = upstream.shape();
        let deadline = shape
            .spec
            .retry_timeout
            .map(|budget| self.work.timing.start + budget);
        let (in_flight, ready) = pick(&upstream, &shape, &mut Tried::new()).await?;
        let tried = Tried::from_iter([identity(in_flight.node())]);
        // The steps before took no time worth a look at the clock.
        let now = self.work.tick;
        self.use_node(&in_flight, &ready, now);
        let chosen = Chosen {
            upstream,
            shape,
            ready,
            tried,
            in_flight: Some(in_flight),
            deadline,
        };
        self.work.upstream_scheme = chosen.shape.spec.scheme.name();
        self.upstream = Some(chosen);

        let Exchange { work, bound, .. } = self;
        let env = RequestEnv(&bound.snap);
        let plan = bound.plan.as_deref();
        let mut cx = Ctx::new(req, None, work, &env);
        if bound.snap.global.uses(Phase::BeforeProxy) {
            chain::run(Phase::BeforeProxy, &bound.snap.global, plan, &mut cx).await?;
        }
        if let Some(plan) = plan.filter(|plan| plan.uses(Phase::BeforeProxy)) {
            chain::run(Phase::BeforeProxy, plan, None, &mut cx).await?;
        }
        super::head::settle_host(self);
        Ok(())
    }

    /// Chooses another node after a failed try.
    ///
    /// # Errors
    /// When tries, nodes or time are used up.
    pub async fn retry(&mut self) -> Result<(), Fault> {
        let Some(chosen) = &mut self.upstream else {
            return Err(FaultKind::Internal.into());
        };
        if chosen
            .deadline
            .is_some_and(|deadline| Instant::now() >= deadline)
        {
            return Err(FaultKind::RetryTimeout.into());
        }
        chosen.in_flight = None;
        let (in_flight, ready) = pick(&chosen.upstream, &chosen.shape, &mut chosen.tried).await?;
        chosen.tried.push(identity(in_flight.node()));
        chosen.ready = Arc::clone(&ready);
        self.use_node(&in_flight, &ready, Instant::now());
        if let Some(chosen) = &mut self.upstream {
            chosen.in_flight = Some(in_flight);
        }
        Ok(())
    }

    /// The failure said nothing about the node in use: it may be chosen again.
    pub fn forgive(&mut self) {
        if let Some(chosen) = &mut self.upstream {
            chosen.tried.pop();
        }
    }

    /// Whether sending the upstream request twice is the same as sending it once (RFC 9110 §9.2.2).
    /// A plugin may have changed the method.
    pub fn is_idempotent(&self, req: &dyn ReqView) -> bool {
        let method = match &self.work.request.method {
            Some(method) => method,
            None => req.method().as_bytes(),
        };
        matches!(
            method,
            b"GET" | b"HEAD" | b"PUT" | b"DELETE" | b"OPTIONS" | b"TRACE"
        )
    }

    /// Whether the upstream's settings allow another try.
    pub fn may_retry(&self) -> bool {
        let tries = u32::try_from(self.work.attempts.len()).unwrap_or(u32::MAX);
        self.upstream
            .as_ref()
            .is_some_and(|chosen| tries <= chosen.shape.retries())
    }

    /// Records a failed try; says whether settings and kind allow another one.
    pub fn note_failure(
        &mut self,
        core: &Core,
        kind: FaultKind,
        cause: &dyn std::fmt::Display,
    ) -> bool {
        let now = Instant::now();
        if let Some(attempt) = self.work.attempts.last_mut() {
            attempt.status = kind.status();
            attempt.response = Some(now - attempt.started);
        }
        let again = kind.may_retry() && self.may_retry();
        if core.failure_log.allow(std::time::SystemTime::now()) {
            let route = self.work.route.as_ref().map(|route| &*route.id);
            let node = self.work.picked.as_ref().map(|picked| picked.addr);
            tracing::warn!(route, ?node, again, error = %cause, "{}", kind.reason());
        }
        again
    }

    fn use_node(&mut self, in_flight: &InFlight, ready: &Ready, now: Instant) {
        let host = Arc::clone(&in_flight.node().host);
        self.work.picked = Some(Picked {
            addr: ready.addr,
            host,
        });
        self.work.attempts.push(Attempt {
            addr: ready.addr,
            status: 0,
            connect: None,
            header: None,
            response: None,
            started: now,
        });
    }

    /// The response head is known: runs the header filters.
    pub fn response_head(&mut self, req: &dyn ReqView, resp: &dyn RespView, origin: Origin) {
        self.work.origin = origin;
        if self.filters(Phase::HeaderFilter) {
            self.with(req, Some(resp), |global, plan, cx| {
                chain::header_filter(global, plan, cx);
                if let Some(plan) = plan {
                    chain::header_filter(plan, None, cx);
                }
            });
        }
        self.work.status = self.work.response.status.unwrap_or_else(|| resp.status());
    }

    /// Whether any plugin acts in a response phase.
    pub fn filters(&self, phase: Phase) -> bool {
        self.bound.snap.global.uses(phase)
            || self
                .bound
                .plan
                .as_ref()
                .is_some_and(|plan| plan.uses(phase))
    }

    /// A piece of the response body: runs the body filters.
    ///
    /// # Errors
    /// When a filter fails.
    pub fn response_body(
        &mut self,
        req: &dyn ReqView,
        resp: Option<&dyn RespView>,
        chunk: &mut Chunk,
    ) -> Result<(), Fault> {
        if !self.filters(Phase::BodyFilter) {
            return Ok(());
        }
        self.with(req, resp, |global, plan, cx| {
            chain::body_filter(global, plan, chunk, cx)?;
            match plan {
                Some(plan) => chain::body_filter(plan, None, chunk, cx),
                None => Ok(()),
            }
        })
    }

    /// The exchange is over, well or not: runs the log phase, then the access log.
    pub fn finish(&mut self, core: &Core, req: &dyn ReqView, resp: Option<&dyn RespView>) {
        let now = Instant::now();
        self.work.finished = Some(now);
        if let Some(last) = self.work.attempts.last_mut() {
            last.response.get_or_insert_with(|| now - last.started);
        }
        if let Some(chosen) = &mut self.upstream {
            chosen.in_flight = None;
        }
        if self.filters(Phase::Log) {
            self.with(req, resp, |global, plan, cx| {
                chain::log(global, plan, cx);
                if let Some(plan) = plan {
                    chain::log(plan, None, cx);
                }
            });
        }
        if let Some(recent) = &core.recent {
            recent.note(req, &self.work, &self.bound.snap.looked_at);
        }
        if let Some(log) = &core.access_log {
            log.write(&Lookup {
                req,
                resp,
                work: &self.work,
            });
        }
    }

    fn with<T>(
        &mut self,
        req: &dyn ReqView,
        resp: Option<&dyn RespView>,
        f: impl FnOnce(&Plan, Option<&Plan>, &mut Ctx<'_>) -> T,
    ) -> T {
        let Exchange { work, bound, .. } = self;
        let env = RequestEnv(&bound.snap);
        let mut cx = Ctx::new(req, resp, work, &env);
        f(&bound.snap.global, bound.plan.as_deref(), &mut cx)
    }

    /// Why the matched route takes the general lane; `None` when the wire lane can carry it.
    pub fn general_because(&self) -> Option<&'static str> {
        self.bound.route.as_ref()?.general_because()
    }

    /// Whether the matched route lets WebSocket through.
    pub fn allows_upgrade(&self) -> bool {
        let route = self.bound.route.as_ref();
        route.is_some_and(|route| route.websocket && !route.speaks_http2())
    }

    /// The matched route.
    pub fn route(&self) -> Option<&Arc<Route>> {
        self.bound.route.as_ref()
    }
}

/// Why nobody is asked: `tls.client_cert_id` names what is not there, or is no client certificate.
const CERT_MISSING: &str = "the upstream's client certificate is missing";

/// A node that has an address. Names without one are passed over.
async fn pick(
    upstream: &Upstream,
    shape: &Shape,
    tried: &mut Tried,
) -> Result<(InFlight, Arc<Ready>), Fault> {
    let mut nameless = false;
    loop {
        let picked = match upstream.pick(shape, tried) {
            Ok(picked) => picked,
            Err(NoNode::Empty) if shape.spec.lacks_cert() => {
                return Err(Fault::new(FaultKind::NoUpstream, CERT_MISSING));
            }
            Err(NoNode::Empty) => return Err(FaultKind::NoNodes.into()),
            Err(NoNode::Exhausted) if nameless => {
                return Err(Fault::new(FaultKind::NoNodes, "no node's name is resolved"));
            }
            Err(NoNode::Exhausted) => return Err(FaultKind::NodesExhausted.into()),
        };
        let node = Arc::clone(picked.node());
        let ready = match node.ready() {
            Some(ready) => Some(ready),
            // An only node is given even if tried.
            None if tried.contains(&identity(&node)) => {
                return Err(Fault::new(FaultKind::NoNodes, "no node's name is resolved"));
            }
            None => node.wait_ready(FIRST_RESOLUTION).await,
        };
        match ready {
            Some(ready) => return Ok((picked, ready)),
            None => {
                nameless = true;
                tried.push(identity(&node));
            }
        }
    }
}
