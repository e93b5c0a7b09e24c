//! What the limit plugins share: the engine, keys, numbers that may come from variables, stores.

pub(crate) mod amount;
pub(crate) mod key;
pub(crate) mod seconds;
pub(crate) mod store;

use std::sync::Arc;

use lockgate_limit::{Engine, Nanos};
use lockgate_plugin::{BuildCx, Ctx, Reply};

/// The one engine of the process: its table is shared by all workers and all plugins that limit, and
/// lives as long as there is such a plugin.
pub(crate) fn engine(bx: &BuildCx<'_>) -> Arc<Engine> {
    bx.states
        .get(("process", "limit", "engine"), Engine::default)
}

/// The time of a request, without reading a clock.
pub(crate) fn now(engine: &Engine, cx: &Ctx<'_>) -> Nanos {
    let timing = cx.work().timing;
    engine.clock().at(cx.tick(), (timing.start, timing.wall))
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
