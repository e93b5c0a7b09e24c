//! Tests in Rust for what a case file cannot say: signals, upgrades, load, files replaced in odd ways.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use anyhow::Result;

use crate::World;

/// A scenario: makes its own gateway, fails with an explanation.
pub(crate) type Scenario = fn(Arc<World>) -> Pin<Box<dyn Future<Output = Result<()>> + Send>>;

/// All scenarios by name.
pub(crate) const ALL: &[(&str, Scenario)] = &[];
