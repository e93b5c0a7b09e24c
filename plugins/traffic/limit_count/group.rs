//! Routes that count together.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use lockgate_plugin::BuildCx;
use rustc_hash::FxHashMap;

use super::Conf;

/// The configurations of one group disagree: it would be chance whose limit applies.
#[derive(Debug, thiserror::Error)]
#[error("group conf mismatched")]
pub(super) struct Mismatch;

/// Groups without members are swept when there are so many more groups.
const SWEEP_EVERY: usize = 1_024;

/// Who belongs to which group: a process-wide object, so that a resource can be held against those in use
/// before it is stored.
#[derive(Clone, Default)]
pub struct Groups {
    members: Arc<Mutex<FxHashMap<Box<str>, Members>>>,
    /// Whether who asks only looks.
    looks: bool,
}

/// The resource and its configuration, for as long as it is in use.
type Members = Vec<(Box<str>, Weak<Conf>)>;

/// Membership, given up when the plugin instance goes.
pub(super) struct Group {
    _conf: Arc<Conf>,
}

impl Groups {
    /// The same groups, for who builds plugins only to see whether they can be built.
    #[must_use]
    pub fn looking(&self) -> Groups {
        Groups {
            looks: true,
            ..self.clone()
        }
    }

    /// Joins a group. A resource may change what itself had said before.
    fn join(&self, owner: &str, name: &str, conf: &Conf) -> Result<Group, Mismatch> {
        let mut all = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() % SWEEP_EVERY == SWEEP_EVERY - 1 {
            let used = |members: &Members| members.iter().any(|(_, conf)| conf.strong_count() > 0);
            all.retain(|_, members| used(members));
        }
        if let Some(members) = all.get_mut(name) {
            members.retain(|(_, conf)| conf.strong_count() > 0);
        }
        let differs = |(other, kept): &(Box<str>, Weak<Conf>)| {
            **other != *owner && kept.upgrade().is_some_and(|kept| *kept != *conf)
        };
        if all.get(name).into_iter().flatten().any(differs) {
            return Err(Mismatch);
        }
        let conf = Arc::new(conf.clone());
        if !self.looks {
            let members = all.entry(name.into()).or_default();
            members.push((owner.into(), Arc::downgrade(&conf)));
        }
        Ok(Group { _conf: conf })
    }
}

impl Group {
    /// Joins a group of the process.
    pub(super) fn join(bx: &BuildCx<'_>, name: &str, conf: &Conf) -> Result<Group, Mismatch> {
        match bx.shared::<Groups>() {
            Some(groups) => groups.join(bx.owner, name, conf),
            // Nobody keeps any: there is nothing to be compared with.
            None => Groups::default().join(bx.owner, name, conf),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn members_agree_and_who_looks_is_none() {
        let conf = |count: u64| -> Conf {
            let conf = json!({"count": count, "time_window": 60, "group": "g"});
            serde_json::from_value(conf).unwrap()
        };
        let groups = Groups::default();
        let looks = groups.looking();
        assert!(looks.join("routes/1", "g", &conf(1)).is_ok());
        let first = groups.join("routes/1", "g", &conf(2));
        assert!(first.is_ok(), "who looked is no member");
        for (owner, count, agrees) in [
            ("routes/2", 1, false),
            ("routes/2", 2, true),
            // What itself had said.
            ("routes/1", 1, true),
        ] {
            let tried = looks.join(owner, "g", &conf(count));
            assert_eq!(tried.is_ok(), agrees, "{owner} {count}");
        }
        let other = looks.join("routes/2", "h", &conf(1));
        assert!(other.is_ok(), "another group");
        drop(first);
        let gone = groups.join("routes/2", "g", &conf(1));
        assert!(gone.is_ok(), "the first member is gone");
    }
}
