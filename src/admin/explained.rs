//! Questions that whoever may read may ask, below `/lockgate/v1`.

use super::Admin;
use crate::endpoint::Answer;
use crate::explain::{self, Asker};

/// A question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Own {
    /// What becomes of a request.
    Explain,
}

/// The question at a path. `None` when the path is another's; an answer when it is not asked so.
pub(crate) fn own(method: &str, path: &str) -> Option<Result<Own, Answer>> {
    Some(match (method, path) {
        ("POST", explain::PATH) => Ok(Own::Explain),
        (_, explain::PATH) => {
            Err(Answer::error(405, "use POST, with the request as JSON").unversioned())
        }
        // Of what else is there, some changes something.
        _ => return None,
    })
}

impl Admin {
    /// Explains a request.
    pub(super) fn explain(&self, body: &[u8]) -> Answer {
        explain::answer(&self.live.snapshot(), &self.rules, body, Asker::WithKey)
    }
}
