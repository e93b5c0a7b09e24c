//! Limits, for whoever operates them.
//!
//! The plugins count; here is what surrounds that in a process: the memory they count in and its
//! hand-over to a successor ([`memory`], [`handover`]), keys with another limit ([`keeping`]), and the
//! answers to questions ([`told`]).

pub(crate) mod handover;
pub(crate) mod keeping;
mod memory;
pub(crate) mod told;
pub(crate) mod wish;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use lockgate_limit::{Engine, Nanos, Origin, Slot, since_zero};

pub(crate) use memory::Memory;

/// What limits count in.
pub(crate) struct Counting {
    /// The engine.
    pub(crate) engine: Engine,
    /// Its memory, where a successor may have it.
    pub(crate) memory: Option<Memory>,
}

/// Where a process hands over what its limits count in.
pub(crate) fn sock(upgrade_sock: &Path) -> PathBuf {
    let mut name = upgrade_sock.as_os_str().to_owned();
    name.push(".limits");
    name.into()
}

/// What limits count in: a successor goes on with what the running process has.
pub(crate) fn counting(table_bytes: usize, predecessor: Option<&Path>) -> Counting {
    let alone = || Counting {
        engine: Engine::with_bytes(table_bytes),
        memory: None,
    };
    if !Slot::is_lock_free() {
        tracing::warn!(
            "this processor changes no 16 bytes at once: an upgrade starts all limits anew"
        );
        return alone();
    }
    if let Some(sock) = predecessor {
        match handover::take(sock, table_bytes) {
            Ok(counting) => {
                tracing::info!("limits go on with what the running process has counted");
                return counting;
            }
            Err(error) => tracing::warn!(
                sock = %sock.display(),
                %error,
                "limits start anew: nothing that was counted could be taken over"
            ),
        }
    }
    let origin = Origin {
        secret: rand::random(),
        time: (Instant::now(), since_zero(SystemTime::now())),
    };
    let made = Memory::new(table_bytes).and_then(|memory| {
        let engine = Engine::over(memory.words(), table_bytes, origin);
        let engine = engine.ok_or(memory::Unusable::Size)?;
        Ok(Counting {
            engine,
            memory: Some(memory.of(origin.secret)),
        })
    });
    made.unwrap_or_else(|error| {
        tracing::warn!(%error, "no memory that can be handed over: an upgrade starts all limits anew");
        alone()
    })
}

/// The time by which limits go, now.
pub(crate) fn now(engine: &Engine) -> Nanos {
    let instant = Instant::now();
    engine.clock().at(instant, (instant, SystemTime::now()))
}

/// What answers about limits are made from.
#[derive(Clone)]
pub(crate) struct Desk {
    /// The limits.
    pub(crate) engine: Arc<Engine>,
    /// The name of this gateway.
    pub(crate) hostname: Arc<str>,
}
