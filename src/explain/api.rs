//! Questions over HTTP, on whichever listener they come.

use super::{Asked, From, PluginSeen, Rules, explain};
use crate::config::snapshot::Snapshot;
use crate::endpoint::Answer;

/// Where they are asked, by POST.
pub(crate) const PATH: &str = "/lockgate/v1/explain";

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asker {
    /// Whoever has a key of the Admin API.
    WithKey,
    /// Whoever is on this machine. It is not told what it could find secrets out by: whether a key
    /// that it makes up is somebody's, or whether a configuration is the one it has in mind.
    Anybody,
}

/// The answer to a question, which is JSON.
pub(crate) fn answer(snapshot: &Snapshot, rules: &Rules, body: &[u8], asker: Asker) -> Answer {
    let asked: Asked = match serde_json::from_slice(body) {
        Ok(asked) => asked,
        Err(error) => return Answer::bad(format!("invalid request body: {error}")).unversioned(),
    };
    let mut told = explain(snapshot, rules, &asked, From::Running);
    if let (Ok(told), Asker::Anybody) = (&mut told, asker) {
        told.plugins.iter_mut().for_each(PluginSeen::forget_secrets);
    }
    let answer = match told.map(|told| serde_json::to_string(&told)) {
        Ok(Ok(text)) => Answer::json(200, text),
        Ok(Err(error)) => Answer::error(500, error.to_string()),
        Err(error) => Answer::bad(error.to_string()),
    };
    answer.unversioned()
}
