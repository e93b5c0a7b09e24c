//! Routes that count together.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use lockgate_plugin::BuildCx;

use super::Conf;

/// The configurations of one group disagree: it would be chance whose limit applies.
#[derive(Debug, thiserror::Error)]
#[error("group conf mismatched")]
pub(super) struct Mismatch;

/// Who belongs to a group: the resource and its configuration, for as long as it is in use.
#[derive(Default)]
struct Members(Mutex<Vec<(Box<str>, Weak<Conf>)>>);

/// Membership, given up when the plugin instance goes.
pub(super) struct Group {
    _members: Arc<Members>,
    _conf: Arc<Conf>,
}

impl Group {
    /// Joins a group. A resource may change what itself had said before.
    pub(super) fn join(bx: &BuildCx<'_>, name: &str, conf: &Conf) -> Result<Group, Mismatch> {
        let members = bx.states.get(("group", bx.plugin, name), Members::default);
        let mut list = members.0.lock().unwrap_or_else(PoisonError::into_inner);
        list.retain(|(_, conf)| conf.strong_count() > 0);
        let differs = |(owner, other): &(Box<str>, Weak<Conf>)| {
            **owner != *bx.owner && other.upgrade().is_some_and(|other| *other != *conf)
        };
        if list.iter().any(differs) {
            return Err(Mismatch);
        }
        let conf = Arc::new(conf.clone());
        list.push((bx.owner.into(), Arc::downgrade(&conf)));
        drop(list);
        Ok(Group {
            _members: members,
            _conf: conf,
        })
    }
}
