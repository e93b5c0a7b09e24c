//! Which writes go on at the same time.
//!
//! What a write looks at is guarded by its transaction, whoever else writes; turns keep writes of
//! this process from getting in each other's way. Most look at their own path and at what they refer
//! to: these go on side by side, so that a store that syncs its disk does it for many at once. What
//! looks at a whole collection goes alone.

use std::hash::BuildHasher;
use std::sync::Arc;

use rustc_hash::FxBuildHasher;
use tokio::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::kinds::Target;
use crate::config::kind::Kind;

/// Paths that are told apart: about as many as there are requests at once.
const PATHS: usize = 64;

/// See the module.
pub(super) struct Turns {
    all: Arc<RwLock<()>>,
    paths: Box<[Mutex<()>]>,
}

/// Held while a write is checked and carried out.
pub(super) enum Turn<'a> {
    /// With nobody else.
    Alone { _all: RwLockWriteGuard<'a, ()> },
    /// With others, at other paths.
    Beside {
        _all: RwLockReadGuard<'a, ()>,
        _path: MutexGuard<'a, ()>,
    },
}

impl Turns {
    /// What goes back by itself takes the same lock, alone.
    pub(super) fn new(all: Arc<RwLock<()>>) -> Turns {
        Turns {
            all,
            paths: (0..PATHS).map(|_| Mutex::default()).collect(),
        }
    }

    /// Waits for one, in the order of asking.
    pub(super) async fn take(&self, target: &Target, method: &str) -> Turn<'_> {
        match &target.id {
            Some(id) if !looks_around(target.kind, method) => Turn::Beside {
                _all: self.all.read().await,
                _path: self.path(&target.path(id)).lock().await,
            },
            _ => Turn::Alone {
                _all: self.all.write().await,
            },
        }
    }

    /// Waits for one with nobody else.
    pub(super) async fn alone(&self) -> Turn<'_> {
        Turn::Alone {
            _all: self.all.write().await,
        }
    }

    fn path(&self, path: &str) -> &Mutex<()> {
        let at = FxBuildHasher.hash_one(path) as usize;
        &self.paths[at % PATHS]
    }
}

/// Whether a write looks at more than its own path and what it refers to.
fn looks_around(kind: Kind, method: &str) -> bool {
    // A deletion looks for users, a POST counts, and these have something that no other may have.
    let unique = matches!(kind, Kind::Consumer | Kind::Credential | Kind::GlobalRule);
    unique || !matches!(method, "PUT" | "PATCH")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(path: &str) -> Target {
        let segments: Vec<String> = path.split('/').map(str::to_owned).collect();
        Target::read(&segments).unwrap()
    }

    #[tokio::test]
    async fn only_what_looks_around_goes_alone() {
        async fn check(path: &str, method: &str, alone: bool) {
            let turns = Turns::new(Arc::default());
            let target = target(path);
            let turn = turns.take(&target, method).await;
            assert_eq!(matches!(turn, Turn::Alone { .. }), alone, "{method} {path}");
            assert_eq!(turns.all.try_read().is_err(), alone, "{method} {path}");
            drop(turn);
            assert!(turns.all.try_write().is_ok(), "{method} {path}");
        }
        check("routes/1", "PUT", false).await;
        check("routes/1/upstream", "PATCH", false).await;
        check("plugin_metadata/cors", "PUT", false).await;
        check("secrets/vault/1", "PATCH", false).await;
        check("routes", "PUT", true).await;
        check("routes", "POST", true).await;
        check("routes/1", "DELETE", true).await;
        check("consumers/a", "PUT", true).await;
        check("consumers/a/credentials/c", "PUT", true).await;
        check("global_rules/1", "PATCH", true).await;
    }

    #[tokio::test]
    async fn one_path_has_one_turn() {
        let turns = Turns::new(Arc::default());
        let first = target("routes/1");
        let turn = turns.take(&first, "PUT").await;
        assert!(turns.path("routes/1").try_lock().is_err());
        let others = (2..100).map(|n| turns.path(&format!("routes/{n}")));
        assert!(others.filter(|path| path.try_lock().is_ok()).count() > 80);
        drop(turn);
        assert!(turns.path("routes/1").try_lock().is_ok());
    }
}
