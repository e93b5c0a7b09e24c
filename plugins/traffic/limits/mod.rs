//! What the limit plugins share: the engine, keys, numbers that may come from variables, stores.

pub(crate) mod amount;
pub(crate) mod key;
pub(crate) mod named;
pub(crate) mod posts;
pub(crate) mod seconds;
pub(crate) mod store;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use lockgate_limit::{Decision, Engine, NEVER, Nanos};
use lockgate_plugin::{BuildCx, Ctx, Flow, Reply, Step};

/// Shorter waits are not worth a timer.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);

/// Nobody is held longer than this: by then whoever asked is gone.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(3_600);

/// The one engine of the process: its table is shared by all workers and all plugins that limit. A
/// gateway that serves has it from the start; elsewhere, as where a configuration is only tried, it is
/// made for the plugins that are.
pub(crate) fn engine(bx: &BuildCx<'_>) -> Arc<Engine> {
    let made = || Engine::default().counting(bx.shared().unwrap_or_default());
    let own = || bx.states.get(("process", "limit", "engine"), made);
    bx.shared().unwrap_or_else(own)
}

/// The time of a request, without reading a clock. Not for when it is over: see [`ended`].
pub(crate) fn now(engine: &Engine, cx: &Ctx<'_>) -> Nanos {
    let timing = cx.work().timing;
    engine.clock().at(cx.tick(), (timing.start, timing.wall))
}

/// When a request was over, for the log phase. What is settled then is settled as of then: to go by
/// when the request came would be to turn back the clock of its limits.
pub(crate) fn ended(engine: &Engine, cx: &Ctx<'_>) -> Nanos {
    let work = cx.work();
    let end = work.finished.unwrap_or_else(|| cx.now());
    engine
        .clock()
        .at(end, (work.timing.start, work.timing.wall))
}

/// A wait, if there is one worth a timer. It ends after [`LONGEST_WAIT`].
pub(crate) fn wait(
    cx: &Ctx<'_>,
    delay: Duration,
) -> Option<Pin<Box<dyn Future<Output = ()> + Send>>> {
    (delay >= SHORTEST_WAIT).then(|| cx.sleep(delay.min(LONGEST_WAIT)))
}

/// Holds a request back for so long, then lets it pass.
pub(crate) fn hold<'a>(cx: &Ctx<'_>, delay: Duration) -> Step<'a> {
    match wait(cx, delay) {
        None => Step::Next,
        Some(wait) => Step::Wait(Box::pin(async move {
            wait.await;
            Ok(Flow::Next)
        })),
    }
}

/// The answer to a request above a limit.
pub(crate) fn refusal(code: u16, message: Option<&str>, reason: &'static str) -> Reply {
    match message {
        Some(message) => Reply::error_msg(code, message),
        None => Reply::status(code),
    }
    .because(reason)
}

/// No limit can be found for a request: of what the plugin was configured with, nothing applies, or
/// a variable has no usable number.
pub(crate) fn undecided(reason: &'static str) -> Reply {
    Reply::status(500).because(reason)
}

/// In the unit of the engine.
pub(crate) fn nanos(duration: Duration) -> Nanos {
    Nanos::try_from(duration.as_nanos()).unwrap_or(Nanos::MAX)
}

/// What a limit on requests under way says, when so many are there.
pub(crate) fn places(allowed: bool, most: u64, there: u64) -> Decision {
    Decision {
        allowed,
        limit: most,
        remaining: most.saturating_sub(there),
        reset: 0,
        // Who knows when one of them ends.
        retry: if allowed { 0 } else { NEVER },
        delay: 0,
    }
}
