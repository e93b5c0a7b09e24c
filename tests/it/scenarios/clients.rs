//! Clients with habits: they talk before they were answered, stay silent in a tunnel, or never read.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;

use super::{gateway, one_route, target, wants};
use crate::World;
use crate::client::{Connection, Message, websocket};

/// Timeouts of the gateway in these scenarios.
const SECOND: &str = "1s";
/// A silence beyond them.
const SILENCE: Duration = Duration::from_millis(2_500);
