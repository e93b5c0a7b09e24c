//! What lockgate has besides APISIX's Admin API, below `/lockgate/v1`: answers only, no changes.

use super::Admin;
use crate::endpoint::Answer;
use crate::explain;

/// What everything of lockgate's own is below.
const PREFIX: &str = "/lockgate/v1";

/// A question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Own {
    /// What becomes of a request.
    Explain,
}

/// The question at a path. `None` when the path is another's; an answer when it is of here and
/// there is nothing.
pub(crate) fn own(method: &str, path: &str) -> Option<Result<Own, Answer>> {
    let rest = path.strip_prefix(PREFIX)?;
    if !rest.is_empty() && !rest.starts_with('/') {
        return None;
    }
    Some(match (method, path) {
        ("POST", explain::PATH) => Ok(Own::Explain),
        (_, explain::PATH) => {
            Err(Answer::error(405, "use POST, with the request as JSON").unversioned())
        }
        _ => Err(Answer::error(404, "not found").unversioned()),
    })
}

impl Admin {
    /// Explains a request.
    pub(super) fn explain(&self, body: &[u8]) -> Answer {
        explain::answer(&self.live.snapshot(), &self.rules, body)
    }
}
