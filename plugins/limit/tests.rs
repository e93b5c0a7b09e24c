//! Properties of the algorithms and of the place where they count. The numbers P1 to P8 are those of
//! the design: decisions equal those of models that are written without regard to speed, bounds
//! hold over every interval, a refusal changes nothing.

mod bounds;
mod flood;
mod later;
mod loom;
mod model;
mod properties;
mod stress;

use std::time::Duration;

use crate::{Algorithm, Engine, Key, Nanos, Rule};

/// Where time starts in tests: above every window.
const START: Nanos = 1 << 57;

fn rule(algorithm: Algorithm, limit: u64, window: Nanos) -> Rule {
    Rule::new(algorithm, limit, Duration::from_nanos(window)).unwrap()
}

fn small() -> Engine {
    Engine::with_bytes(4 << 10)
}

fn key(engine: &Engine, name: u64) -> Key {
    engine.key(name).done()
}
