//! Runs the plugins of a plan, one phase at a time.
//!
//! A plugin that does not wait costs a call. One that panics costs its request
//! a 500, with the plugin's name in the log; the worker goes on.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use futures::FutureExt;
use lockgate_plugin::{Body, Chunk, Ctx, Flow, Phase, PluginError, Reply, Step};

use super::fault::{Fault, FaultKind, Stop};
use crate::config::compile::plan::{Link, Plan};

/// Runs a request phase. `route` is the matched route's plan, when a global plan is run: it
/// silences global plugins that give way to the route's own.
pub async fn run(
    phase: Phase,
    plan: &Plan,
    route: Option<&Plan>,
    cx: &mut Ctx<'_>,
) -> Result<(), Stop> {
    for link in plan.links(phase) {
        if !wanted(link, route, cx) {
            continue;
        }
        let mut waited = false;
        let flow = {
            let step = catch(link, || match phase {
                Phase::Rewrite => link.handler.rewrite(cx),
                Phase::Access => link.handler.access(cx),
                _ => link.handler.before_proxy(cx),
            });
            match step {
                Ok(Step::Next) => continue,
                Ok(Step::Reply(reply)) => Ok(Flow::Reply(reply)),
                Ok(Step::Wait(wait)) => {
                    waited = true;
                    match AssertUnwindSafe(wait).catch_unwind().await {
                        Ok(flow) => flow,
                        Err(panic) => Err(panicked(&*panic)),
                    }
                }
                Err(error) => Err(error),
            }
        };
        if waited {
            cx.work_mut().tick = Instant::now();
        }
        match flow {
            Ok(Flow::Next) => {}
            Ok(Flow::Reply(reply)) => return Err(Stop::Reply(finish(link, reply))),
            Err(error) => return Err(failed(link, phase, error)),
        }
    }
    Ok(())
}

/// Runs the header filters. A failing one is logged and left out: the response goes on.
pub fn header_filter(plan: &Plan, route: Option<&Plan>, cx: &mut Ctx<'_>) {
    for link in plan.links(Phase::HeaderFilter) {
        if wanted(link, route, cx)
            && let Err(error) = catch(link, || link.handler.header_filter(cx))
        {
            warn(link, Phase::HeaderFilter, &error);
        }
    }
}

/// Runs the body filters on a piece of the response body.
///
/// # Errors
/// When a filter fails: the body cannot be taken back, so the connection has to be cut.
pub fn body_filter(
    plan: &Plan,
    route: Option<&Plan>,
    chunk: &mut Chunk,
    cx: &mut Ctx<'_>,
) -> Result<(), Fault> {
    for link in plan.links(Phase::BodyFilter) {
        if wanted(link, route, cx)
            && let Err(error) = catch(link, || link.handler.body_filter(chunk, cx))
        {
            warn(link, Phase::BodyFilter, &error);
            return Err(Fault::new(FaultKind::Plugin, error.message));
        }
    }
    Ok(())
}

/// Runs the log phase. Failures are logged; nothing else depends on them.
pub fn log(plan: &Plan, route: Option<&Plan>, cx: &mut Ctx<'_>) {
    for link in plan.links(Phase::Log) {
        if wanted(link, route, cx) {
            let called = catch(link, || {
                link.handler.log(cx);
                Ok(())
            });
            if let Err(error) = called {
                warn(link, Phase::Log, &error);
            }
        }
    }
}

/// Whether a link runs on this request. Sets up its identity for per-request values.
fn wanted(link: &Link, route: Option<&Plan>, cx: &mut Ctx<'_>) -> bool {
    if is_silent(link, route) {
        return false;
    }
    if let Some(gate) = &link.gate {
        let identity = Arc::as_ptr(gate) as usize;
        let open = match cx.work().gates.get(identity) {
            Some(open) => open,
            None => {
                let open = cx.matches(gate);
                cx.work_mut().gates.put(identity, open);
                open
            }
        };
        if !open {
            return false;
        }
    }
    cx.enter(link.identity());
    true
}

/// Whether a global plugin gives way to the route's own.
pub fn is_silent(link: &Link, route: Option<&Plan>) -> bool {
    link.prefer_route && route.is_some_and(|route| route.has(link.handler.name()))
}

fn catch<T>(link: &Link, call: impl FnOnce() -> Result<T, PluginError>) -> Result<T, PluginError> {
    // A panic may leave the plugin's own state half changed; that is the plugin's to repair, and
    // its locks recover from poisoning. The request's state is only read for the answer and log.
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => result,
        Err(panic) => {
            tracing::error!(plugin = link.handler.name(), "plugin panicked");
            Err(panicked(&*panic))
        }
    }
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> PluginError {
    let text = panic
        .downcast_ref::<&str>()
        .map(|s| (*s).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "unknown panic".to_owned());
    PluginError::new(format!("panic: {text}"))
}

fn failed(link: &Link, phase: Phase, error: PluginError) -> Stop {
    warn(link, phase, &error);
    match error.reply {
        Some(reply) => Stop::Reply(finish(link, reply)),
        None => Stop::Fault(Fault::new(FaultKind::Plugin, error.message)),
    }
}

fn warn(link: &Link, phase: Phase, error: &PluginError) {
    tracing::warn!(
        plugin = link.handler.name(), phase = phase.name(), error = %error, "plugin failed"
    );
}

/// Applies `_meta.error_response`.
fn finish(link: &Link, mut reply: Reply) -> Reply {
    if reply.status >= 400
        && let Some(body) = &link.on_error
    {
        reply.body = Body::Bytes(body.clone());
    }
    if reply.reason.is_empty() {
        reply.reason = link.handler.name();
    }
    reply
}
