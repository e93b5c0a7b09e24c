//! The Admin API: resources are read and written here, by HTTP, as in APISIX.
//!
//! It knows the store and the checks, and nothing of how a configuration is compiled: the gateway
//! follows the store by itself. A write is answered once it is on disk and, if that is soon, once
//! requests see it.

mod access;
mod changes;
mod check;
mod explained;
pub mod key;
mod kinds;
mod limits;
mod listener;
mod merge;
mod private_keys;
mod read;
mod references;
mod request;
mod rollback;
mod schemas;
mod standalone;
mod turns;
mod whole;
mod write;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, Notify, RwLock, Semaphore, watch};

use crate::changes::history::Limits;
use crate::changes::outcomes::Trial;
use crate::config::compile::instance::Workshop;
use crate::config::keyring::Keyring;
use crate::config::snapshot::Live;
use crate::endpoint::Answer;
use crate::explain::Rules;
use crate::limits::Desk;
use crate::observe::recent::Recent;
use crate::settings::AdminSettings;
use crate::store::{Mirror, Store, StoreError};
use access::Access;
use check::Checker;
use kinds::Target;
use request::Request;
pub(crate) use schemas::entry as plugin_entry;
use standalone::Standalone;
use turns::Turns;
use write::Failure;

/// How long an answer waits until requests see what was written. The write is done either way.
const IN_USE_LIMIT: Duration = Duration::from_secs(1);
/// Bodies of an order that may be as large as a whole configuration.
const MOST_LARGE: usize = 2;
/// Orders that are worked out at once: each may compile everything.
const MOST_PLANS: usize = 2;

/// The Admin API.
pub struct Admin {
    access: Access,
    cors: bool,
    server_token: String,
    store: Arc<dyn Store>,
    mirror: Option<Arc<Mirror>>,
    keyring: Keyring,
    checker: Arc<Checker>,
    history: Limits,
    recent: Option<Arc<Recent>>,
    trial: Arc<Trial>,
    /// Told when a change begins to wait for its confirmation, or ceases to.
    wake: Arc<Notify>,
    stream_mode: bool,
    /// In the mode in which the configuration is written as a whole, the one in force.
    standalone: Option<Mutex<Standalone>>,
    /// The revision of the store that requests see.
    seen: watch::Receiver<u64>,
    turns: Turns,
    /// What requests see, and what the settings say about them: for questions about requests.
    live: Arc<Live>,
    rules: Rules,
    desk: Desk,
    /// Told when something was said about a key of a limit.
    limits_wake: Arc<Notify>,
    large: Arc<Semaphore>,
    plans: Arc<Semaphore>,
}

/// What the Admin API is made of.
pub struct Parts<'a> {
    /// The listener's settings.
    pub settings: &'a AdminSettings,
    /// The key for when none is configured.
    pub generated_key: Option<String>,
    /// What `Server` says.
    pub server_token: String,
    /// Where resources are kept.
    pub store: Arc<dyn Store>,
    /// What is known of that without asking, where it is somewhere else.
    pub mirror: Option<Arc<Mirror>>,
    /// What is encrypted there.
    pub keyring: Keyring,
    /// How much history is kept.
    pub history: Limits,
    /// The latest requests, where they are kept.
    pub recent: Option<Arc<Recent>>,
    /// What changes are tried with.
    pub trial: Trial,
    /// To be told when a change begins to wait for its confirmation, or ceases to.
    pub wake: Arc<Notify>,
    /// Held by every write, and alone by what goes back by itself.
    pub writes: Arc<RwLock<()>>,
    /// Whether the configuration is written as a whole.
    pub standalone: bool,
    /// To see whether plugins can be built; not the one that the gateway uses.
    pub workshop: Workshop,
    /// The revision of the store that requests see.
    pub seen: watch::Receiver<u64>,
    /// What requests see.
    pub live: Arc<Live>,
    /// What the settings say about requests.
    pub rules: Rules,
    /// The limits.
    pub(crate) desk: Desk,
    /// To be told when something was said about a key of a limit.
    pub limits_wake: Arc<Notify>,
}

impl Admin {
    /// An Admin API.
    pub fn new(parts: Parts<'_>) -> Admin {
        Admin {
            access: Access::new(parts.settings, parts.generated_key.as_deref()),
            cors: parts.settings.cors,
            server_token: parts.server_token,
            store: parts.store,
            mirror: parts.mirror,
            keyring: parts.keyring,
            checker: Arc::new(Checker::new(parts.workshop)),
            history: parts.history,
            recent: parts.recent,
            trial: Arc::new(parts.trial),
            wake: parts.wake,
            stream_mode: parts.settings.stream_mode,
            standalone: parts.standalone.then(Mutex::default),
            seen: parts.seen,
            turns: Turns::new(parts.writes),
            live: parts.live,
            rules: parts.rules,
            desk: parts.desk,
            limits_wake: parts.limits_wake,
            large: Arc::new(Semaphore::new(MOST_LARGE)),
            plans: Arc::new(Semaphore::new(MOST_PLANS)),
        }
    }

    /// What is answered to a request whose key was found good.
    async fn respond(&self, request: &Request) -> Answer {
        if request.own {
            return self.own(request).await;
        }
        let Some(name) = request.segment(0) else {
            return Answer::error(404, "not found").unversioned();
        };
        if self.standalone.is_some() {
            return match name {
                "configs" => self.whole(request).await,
                _ => Answer::error(404, "not found").unversioned(),
            };
        }
        match name {
            "plugins" => return self.plugins(request),
            "schema" => return self.schema(request),
            "configs" => return self.configs(request),
            _ => {}
        }
        let Some(target) = Target::read(&request.segments) else {
            return Answer::error(404, format!("Unsupported resource type: {name}"));
        };
        if request.method != "PATCH" && target.below.iter().any(|part| !part.is_empty()) {
            // There is nothing to read, write or delete below a resource but its parts, by PATCH.
            return Answer::error(404, "not found");
        }
        if target.kind == crate::config::kind::Kind::StreamRoute && !self.stream_mode {
            return Answer::bad("stream mode is disabled, can not add stream routes");
        }
        let done = match request.method.as_str() {
            "GET" => self.get(&target, request).await.map_err(Failure::Store),
            "PUT" | "POST" | "PATCH" | "DELETE" => self.write(&target, request).await,
            _ => Ok(Answer::error(404, "not found")),
        };
        match done {
            Ok(answer) | Err(Failure::Answer(answer)) => answer,
            Err(Failure::Store(error)) => unavailable(&error),
        }
    }

    /// Waits a moment until requests see a revision.
    async fn in_use(&self, revision: u64) {
        let mut seen = self.seen.clone();
        let wait = seen.wait_for(|seen| *seen >= revision);
        // What takes longer is in use a little later.
        let _ = tokio::time::timeout(IN_USE_LIMIT, wait).await;
    }
}

fn unavailable(error: &StoreError) -> Answer {
    tracing::error!(error = %error.chain(), "the store failed");
    Answer::error(503, error.chain())
}
